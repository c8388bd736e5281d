"""`extender config`: checks configuration files, and prints kube-scheduler's configuration for one.

`validate FILE...` prints for each file that it is valid, or all its problems. `generate` prints the
KubeSchedulerConfiguration for a configuration of the extender and a layout. With `--schedulers` it prints a document for each
scheduler, and the policy that distributes pods over them. It never prints https without a CA, because kube-scheduler would not
verify the extender's certificate then.
https://kubernetes.io/docs/reference/config-api/kube-scheduler-config.v1/
"""

import argparse
import base64
import math
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, get_args

from extender.cli.all_nodes_policy import all_nodes_policy, check_all_nodes_policy
from extender.cli.files import read_bytes, read_settings
from extender.cli.main import CommandError, Commands, say
from extender.doctor.scheduler_config import SAMPLED_PERCENTAGE
from extender.model.objects import DEFAULT_SCHEDULER
from extender.rules import catalog
from extender.settings.configuration import Mode, Settings, default_settings
from extender.settings.rules import ScorePlugins
from extender.verbs.prioritize import has_scores
from extender.wire.api_server import NEWEST, OLDEST

_VERSION: Final = re.compile(r"v?1\.(\d+)(?:\.\d+)?")
LAYOUTS: Final = ("sidecar", "second-scheduler", "service")
SECOND_SCHEDULER: Final = "placement-scheduler"
MOST_SCHEDULERS: Final = 32
ALL_NODES: Final = "-all-nodes"
"""What the name of the profile that filters all nodes has after the name of the other profile."""
SERVICE_HOST: Final = "placement-extender.placement-extender.svc"
# kube-scheduler ignores --kubeconfig if --config is set, so the document names the file. In a pod it needs none.
_KUBEADM: Final = "/etc/kubernetes/scheduler.conf"
SCHEDULER_KUBECONFIG: Final = {"sidecar": _KUBEADM, "second-scheduler": "", "service": _KUBEADM}

# kube-scheduler's defaults are 10 and 100. See "What preemption costs" in config/explanation/preemption.md.
CANDIDATES: Final = {"minCandidateNodesPercentage": 1, "minCandidateNodesAbsolute": 30}


def add_parser(commands: Commands) -> None:
    """Adds the parsers of both actions."""
    config = commands.add_parser(
        "config",
        help="work with configuration files",
        examples=["validate config/extender.yaml", "generate --mode offload"],
    )
    actions = config.add_subparsers(title="actions", metavar="ACTION", required=True)
    validate = actions.add_parser("validate", help="check configuration files", examples=["config/extender.yaml"])
    validate.add_argument("files", metavar="FILE", nargs="+", help='a configuration file, "-" for standard input')
    validate.set_defaults(run=validate_files)
    _add_generate(actions)


def _add_generate(actions: Commands) -> None:
    parser = actions.add_parser(
        "generate",
        help="print the KubeSchedulerConfiguration for a configuration",
        examples=["--mode offload --layout service --embed"],
    )
    parser.add_argument("--config", metavar="FILE", help="configuration of the extender (default: all defaults)")
    parser.add_argument("--mode", choices=get_args(Mode), help="instead of --config: all defaults of that mode")
    parser.add_argument("--layout", choices=LAYOUTS, default="sidecar", help="where the extender runs (%(default)s)")
    parser.add_argument(
        "--host", help=f"host name by which the scheduler calls the extender in the layout service ({SERVICE_HOST})"
    )
    for name, what in (
        ("ca", "CA of the extender's certificate"),
        ("cert", "client certificate of the scheduler"),
        ("key", "key of that certificate"),
    ):
        parser.add_argument(f"--{name}-file", metavar="FILE", default="", help=f"{what}: path for kube-scheduler")
    parser.add_argument(
        "--scheduler-kubeconfig",
        metavar="FILE",
        help=f'kubeconfig of kube-scheduler ({_KUBEADM}; in the layout second-scheduler "", its service account)',
    )
    parser.add_argument(
        "--schedulers",
        type=int,
        default=1,
        metavar="N",
        help=f"configurations of N schedulers, {SECOND_SCHEDULER}-0 and so on, and a policy that gives each pod to one",
    )
    parser.add_argument(
        "--out", metavar="FOLDER", help="with --schedulers: write a file for each document instead of printing them"
    )
    parser.add_argument(
        "--all-nodes-policy",
        action="store_true",
        help="print the admission policy that gives pods which prefer few nodes the profile that filters all nodes, instead",
    )
    parser.add_argument(
        "--kubernetes",
        metavar="1.NN",
        default="",
        help=f"version of kube-scheduler and the API server (the current cluster's, else 1.{NEWEST})",
    )
    parser.add_argument("--embed", action="store_true", help="put the content of the three files into the output")
    parser.set_defaults(run=generate)


def validate_files(arguments: argparse.Namespace) -> int:
    """Returns 0 if every file is valid, else 1."""
    files: Sequence[str] = arguments.files
    return max([_validate(file) for file in files])  # all files, also after an invalid one


def _validate(file: str) -> int:
    try:
        settings = read_settings(file)
    except CommandError as error:
        say(*error.lines, to=sys.stderr)
        return 1
    say(f"{file}: valid ({settings.kind}, mode {settings.mode})")
    return 0


def generate(arguments: argparse.Namespace) -> int:
    """Prints the document."""
    if arguments.config and arguments.mode:
        raise CommandError("--config and --mode: the configuration sets the mode")
    settings = read_settings(arguments.config) if arguments.config else default_settings(arguments.mode or "offload")
    minor = _minor_given(arguments.kubernetes)
    if arguments.all_nodes_policy:
        # The scheduler's configuration is the same for all supported versions. The cluster is asked only for what differs.
        from extender.cli.kubernetes_version import minor_of_cluster  # noqa: PLC0415 - it imports the client of the API server

        check_all_nodes_policy(minor or minor_of_cluster() or NEWEST)
        say(*_all_nodes_policy(settings, arguments).removesuffix("\n").split("\n"))
        return 0
    # `--schedulers 0` counts as several too, so that it gets the error about the number.
    is_several = arguments.schedulers != 1 or bool(arguments.out)
    names = [""]
    if is_several:
        _check_several(settings, arguments.layout, arguments.schedulers)
        names = [f"{SECOND_SCHEDULER}-{number}" for number in range(arguments.schedulers)]
    documents = {f"{name}.yaml": scheduler_configuration(settings, arguments, name) for name in names}
    if is_several:
        documents["policy.yaml"] = distributing_policy(names, _exempt(arguments))
    if arguments.out:
        _write(Path(arguments.out), documents)
    else:
        # One stream of YAML documents, which `kubectl apply -f -` and a shell can split.
        say(*"---\n".join(documents.values()).removesuffix("\n").split("\n"))
    return 0


def _all_nodes_policy(settings: Settings, arguments: argparse.Namespace) -> str:
    if not _samples(settings) or arguments.schedulers != 1:
        raise CommandError(
            "--all-nodes-policy: the generated configuration has no profile for all nodes: it has one in mode offload with "
            "rejectedPods.nominateElsewhere, for one scheduler"
        )
    own = SECOND_SCHEDULER if arguments.layout == "second-scheduler" else DEFAULT_SCHEDULER
    return all_nodes_policy(own, f"{own}{ALL_NODES}", _exempt(arguments))


def _exempt(arguments: argparse.Namespace) -> list[str]:
    """The namespaces whose pods the schedulers depend on."""
    return list(filter(None, ("kube-system", _namespace_in(arguments.host or SERVICE_HOST))))


def _check_several(settings: Settings, layout: str, count: int) -> None:
    # `--out` alone gives 1 here: a single scheduler has a single document, which is printed.
    if not 1 < count <= MOST_SCHEDULERS:
        raise CommandError(f"--schedulers: expected 2 to {MOST_SCHEDULERS}, got {count}")
    # With `schedulers: one` the extender leaves free resources to the scheduler, which does not see what others assume.
    if settings.schedulers != "many":
        raise CommandError("--schedulers: give a configuration of the extender with `schedulers: many` (--config)")
    if layout != "service":
        raise CommandError(
            f"--schedulers: layout {layout} gives each scheduler an extender of its own; use --layout service, so that all ask one"
        )


def _write(folder: Path, documents: dict[str, str]) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in documents.items():
            (folder / name).write_text(text, "utf-8")
            say(folder / name)
    except OSError as error:
        raise CommandError(f"--out {folder}: {error.strerror}") from None


def _namespace_in(host: str) -> str:
    """The namespace in the host name of a Service, empty where the name is another one."""
    labels = host.split(".")
    return labels[1] if labels[2:3] == ["svc"] else ""


def distributing_policy(names: Sequence[str], exempt: Sequence[str]) -> str:
    """A policy that gives each pod to one of the schedulers, as text with comments. ``exempt``: namespaces left out."""
    lines = [
        "# Gives each pod to one of the schedulers when it is created, all pods of an owner to the same one. Workloads need no",
        "# change. The namespaces left out have the pods that the schedulers depend on: the default scheduler places them.",
        "apiVersion: placement.extender.dev/v1alpha1",
        "kind: ClusterPodSchedulingPolicy",
        "metadata:",
        "  name: placement-schedulers",
        "spec:",
        "  podSelector: {}",
        "  namespaceSelector:",
        "    matchExpressions:",
        f"      - {{key: kubernetes.io/metadata.name, operator: NotIn, values: [{', '.join(exempt)}]}}",
        "  when: [Admission] # the name of the scheduler cannot change afterwards",
        f"  schedulerNames: [{', '.join(names)}]",
    ]
    return "\n".join(lines) + "\n"


def scheduler_configuration(settings: Settings, arguments: argparse.Namespace, name: str = "") -> str:
    """The document as text with comments. Raises CommandError for settings that would not work or not be secure.

    ``name``: the name of one of several schedulers; empty for the only scheduler of the layout.
    """
    _check(settings, arguments)
    layout, kubeconfig = arguments.layout, arguments.scheduler_kubeconfig
    if kubeconfig is None:
        kubeconfig = "" if name else SCHEDULER_KUBECONFIG[layout]
    # Among several schedulers the policy that distributes pods sets schedulerName already.
    is_of_several, name = bool(name), name or (SECOND_SCHEDULER if layout == "second-scheduler" else "")
    lines = [
        f"# kube-scheduler for placement-extender: mode {settings.mode}, layout {layout}. Start it with --config=FILE.",
        "apiVersion: kubescheduler.config.k8s.io/v1",
        "kind: KubeSchedulerConfiguration",
        "",
        *_sampling(settings),
    ]
    if kubeconfig:
        lines += ["", "clientConnection:"]
        lines += [f"  kubeconfig: {kubeconfig} # with --config the scheduler ignores its flag --kubeconfig"]
    if name:
        lines += [
            "",
            "leaderElection: # a Lease of its own: the first scheduler has another one",
            "  leaderElect: true",
        ]
        # kube-scheduler's default Lease is kube-scheduler in kube-system. Two schedulers with one Lease would stand by
        # for each other.
        lines += [f"  resourceName: {name}", "  resourceNamespace: kube-system"]
    # Extenders are no part of a profile: one entry serves every schedulerName of this process.
    profiles = _profiles(settings, name, has_all_nodes=_samples(settings) and not is_of_several)
    lines += [*profiles, "", "extenders: # they apply to all profiles of this scheduler"]
    return "\n".join([*lines, *_extender_entry(settings, arguments)]) + "\n"


def _check(settings: Settings, arguments: argparse.Namespace) -> None:
    tls = settings.server.tls
    if arguments.layout == "service" and not tls.cert_file:
        raise CommandError("layout service: set server.tls first, as calls cross the network (`extender certs`)")
    if tls.cert_file and not arguments.ca_file:
        raise CommandError(
            "server.tls is set: --ca-file is needed, else kube-scheduler does not verify the extender's certificate"
        )
    if tls.client_ca_file and not (arguments.cert_file and arguments.key_file):
        raise CommandError("server.tls.clientCAFile is set: --cert-file and --key-file are needed")
    if bool(arguments.cert_file) != bool(arguments.key_file):
        raise CommandError("--cert-file and --key-file: give both or none")


def _sampling(settings: Settings) -> Iterator[str]:
    if not settings.rejected_pods.nominate_elsewhere and settings.mode == "offload":
        yield "percentageOfNodesToScore: 100 # with a sample a pod that fits few nodes waits long: rejectedPods.nominateElsewhere is off"
    elif _samples(settings):
        yield "# A sample of 2 % of the nodes, at least 100: the scheduler filters them for each pod. If no node of the sample fits,"
        yield "# rejectedPods.nominateElsewhere nominates the pod to a node outside of it. Measured in config/explanation/placement.md,"
        yield "# Sampling."
        yield f"percentageOfNodesToScore: {SAMPLED_PERCENTAGE}"
    else:
        yield "# percentageOfNodesToScore keeps its default, which samples the nodes and is fast. If no node of the sample fits,"
        yield "# rejectedPods.nominateElsewhere nominates the pod to a node outside of it."


def _profiles(settings: Settings, name: str, *, has_all_nodes: bool) -> Iterator[str]:
    plugins = [*_plugins(settings), *_plugin_config(settings)]
    if not (name or plugins or has_all_nodes):
        return
    yield ""
    yield "profiles:"
    own = name or DEFAULT_SCHEDULER
    yield f"  - schedulerName: {own}"
    yield from plugins
    if has_all_nodes:
        yield "  # For pods that prefer few nodes, as a sample may have none of them: its pods have this schedulerName. `extender config"
        yield "  # generate --all-nodes-policy` prints an admission policy that gives it to them. See Sampling in config/explanation/placement.md."
        yield f"  - schedulerName: {own}{ALL_NODES}"
        yield "    percentageOfNodesToScore: 100"
        yield from plugins


def _samples(settings: Settings) -> bool:
    """Whether the scheduler samples fewer nodes than by default."""
    return settings.mode == "offload" and settings.rejected_pods.nominate_elsewhere


def _plugins(settings: Settings) -> Iterator[str]:
    """The plugins of a profile."""
    disabled, enabled, unscored = _disabled(settings), *_score_weights(settings)
    if disabled or enabled or unscored:
        yield "    plugins:"
    if disabled or enabled:
        yield "      multiPoint: # disables a plugin at all extension points"
        yield "        disabled:" if disabled else "        disabled: []"
        yield from (f"          - name: {plugin}" for plugin in disabled)
    # The two disabled plugins give up to 2 × 100 points each. With inTree the extender answers 0 to 400, which
    # kube-scheduler multiplies by ten. Ten times the weights of the other plugins keep the proportions.
    if enabled:
        is_wide = settings.answers.score_scale == "inTree"
        what = "weights times ten, as answers.scoreScale is inTree" if is_wide else "weights in answers.scores"
        yield f"        enabled: # the {what}"
        yield from (f"          - {{name: {plugin}, weight: {weight}}}" for plugin, weight in enabled.items())
    if unscored:
        yield "      score: # weight 0 in answers.scores"
        yield "        disabled:"
        yield from (f"          - name: {plugin}" for plugin in unscored)


def _score_weights(settings: Settings) -> tuple[dict[str, int], list[str]]:
    """The weights that differ from kube-scheduler's defaults, by plugin; and the plugins that shall not score."""
    ours, usual = settings.answers.scores.by_plugin(), ScorePlugins().by_plugin()
    unscored = [plugin for plugin, weight in ours.items() if not weight]
    if settings.answers.score_scale == "inTree":
        return {plugin: 10 * weight for plugin, weight in {**ours, "ImageLocality": 1}.items() if weight}, unscored
    return {plugin: weight for plugin, weight in ours.items() if weight and weight != usual[plugin]}, unscored


def _plugin_config(settings: Settings) -> Iterator[str]:
    """Arguments of plugins that go with the settings.

    1. Fewer dry runs in the scheduler if the extender chooses the victims, see "What preemption costs".
    2. Bin packing for the pods whose node the scheduler chooses.
    """
    executes, packs = settings.preemption.mode == "execute", settings.answers.scoring_strategy == "MostAllocated"
    if settings.mode != "offload" or not (executes or packs):
        return
    yield "    pluginConfig:"
    if packs:
        yield "      - name: NodeResourcesFit"
        yield "        args: # as answers.scoringStrategy"
        yield "          scoringStrategy:"
        yield "            type: MostAllocated"
        yield "            resources: [{name: cpu, weight: 1}, {name: memory, weight: 1}]"
    if executes:
        yield "      - name: DefaultPreemption"
        yield "        args: # each candidate costs a dry run; if none of them helps, the extender searches the other nodes"
        yield from (f"          {name}: {number}" for name, number in CANDIDATES.items())


def _disabled(settings: Settings) -> list[str]:
    if settings.mode == "augment":
        return []
    # In mode offload the extender applies these rules for all nodes. The plugin would apply them again, node by node.
    return [plugin for plugin, rule in catalog.replaced_plugins() if rule.is_enabled(settings.rules)]


def _extender_entry(settings: Settings, arguments: argparse.Namespace) -> Iterator[str]:
    server, paths = settings.server, settings.server.paths
    scheme = "https" if server.tls.cert_file else "http"
    offload = settings.mode == "offload"
    host = arguments.host or (SERVICE_HOST if arguments.layout == "service" else "127.0.0.1")
    yield f"  - urlPrefix: {scheme}://{host}:{server.bind_address.port}"
    yield f"    filterVerb: {paths.filter.lstrip('/')} # joined with urlPrefix; server.paths of the extender"
    if has_scores(settings):
        yield f"    prioritizeVerb: {paths.prioritize.lstrip('/')} # an empty answer costs the scheduler less than no verb"
        yield "    weight: 1 # scores are 0 to 10, and the scheduler multiplies them by 10 times this weight"
    else:
        yield "    # No prioritizeVerb: with placement decisive filter answers one node, so there is nothing to score."
    yield f"    preemptVerb: {paths.preempt.lstrip('/')}"
    if paths.bind:
        yield f"    bindVerb: {paths.bind.lstrip('/')} # the extender needs the permission to create pods/binding"
    yield "    nodeCacheCapable: true # send names instead of whole nodes"
    yield f"    httpTimeout: {math.floor(server.request_timeout) + 1}s # longer than server.requestTimeout ({server.request_timeout})"
    why = "without the extender the plugins still apply the constraints"
    if offload:
        why = "without the extender pods would be placed without their constraints"
    elif settings.schedulers == "many":
        why = "without the extender two schedulers would give one room away twice"
    elif settings.quota.rejects:
        why = "without the extender pods would be placed over their quotas"
    # `ignorable: true` places pods without the extender while it does not answer. Only an extender that forbids nothing
    # of its own may be passed over.
    must_ask = offload or settings.quota.rejects or settings.schedulers == "many"
    yield f"    ignorable: {'false' if must_ask else 'true'} # {why}"
    if server.tls.cert_file:
        yield "    enableHTTPS: true"
        yield "    tlsConfig:"
        for name in ("ca", "cert", "key"):
            if path := getattr(arguments, f"{name}_file"):
                content = base64.b64encode(read_bytes(path)).decode() if arguments.embed else ""
                yield f"      {name}Data: {content}" if arguments.embed else f"      {name}File: {path}"


def _minor_given(text: str) -> int | None:
    """The minor version of an argument; None for an empty one. Raises CommandError."""
    match = _VERSION.fullmatch(text)
    if text and match is None:
        raise CommandError(f"--kubernetes: expected a version such as 1.{NEWEST}, got {text}")
    minor = int(match[1]) if match else None
    if minor is not None and minor < OLDEST:
        raise CommandError(f"--kubernetes: 1.{OLDEST} is the oldest supported version, got {text}")
    return minor
