"""`extender config`: checks configuration files, and prints kube-scheduler's configuration for one.

`validate FILE...` prints for each file that it is valid, or all its problems. `generate` prints the
KubeSchedulerConfiguration for a configuration of the extender and a layout. It never prints https without a CA:
kube-scheduler would then not verify the extender's certificate.
https://kubernetes.io/docs/reference/config-api/kube-scheduler-config.v1/
"""

import argparse
import base64
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, get_args

from extender.cli.command import CommandError, Commands
from extender.cli.files import read_bytes, read_settings
from extender.rules import catalog
from extender.settings.configuration import Mode, Settings, default_settings
from extender.verbs.prioritize import has_scores

LAYOUTS: Final = ("sidecar", "second-scheduler", "service")
SECOND_SCHEDULER: Final = "placement-scheduler"
SERVICE_HOST: Final = "placement-extender.placement-extender.svc"
# kube-scheduler ignores --kubeconfig if --config is set, so the document names the file. In a pod it needs none.
_KUBEADM: Final = "/etc/kubernetes/scheduler.conf"
SCHEDULER_KUBECONFIG: Final = {"sidecar": _KUBEADM, "second-scheduler": "", "service": _KUBEADM}

# kube-scheduler's defaults are 10 and 100. See "What preemption costs" in config/README.md.
CANDIDATES: Final = {"minCandidateNodesPercentage": 1, "minCandidateNodesAbsolute": 30}

_TEN_TIMES: Final = (  # the default weights times ten, see "The scale of scores" in config/README.md
    "TaintToleration, weight: 30",
    "NodeAffinity, weight: 20",
    "NodeResourcesFit, weight: 10",
    "NodeResourcesBalancedAllocation, weight: 10",
    "ImageLocality, weight: 10",
)


@dataclass(frozen=True, slots=True)
class Trust:
    """Paths on the machine of kube-scheduler; with `embed` the configuration has the content of the files instead."""

    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    embed: bool = False

    def fields(self) -> Iterator[tuple[str, str]]:
        """The fields of tlsConfig. Raises CommandError if a file to embed cannot be read."""
        for name, path in (("ca", self.ca_file), ("cert", self.cert_file), ("key", self.key_file)):
            if path and self.embed:
                yield f"{name}Data", base64.b64encode(read_bytes(path)).decode()
            elif path:
                yield f"{name}File", path


def add_parser(commands: Commands) -> None:
    """Adds the parsers of both actions."""
    config = commands.add_parser("config", help="work with configuration files")
    actions = config.add_subparsers(title="actions", metavar="ACTION", required=True)
    validate = actions.add_parser("validate", help="check configuration files")
    validate.add_argument("files", metavar="FILE", nargs="+", help='a configuration file, "-" for standard input')
    validate.set_defaults(run=validate_files)
    _add_generate(actions)


def _add_generate(actions: Commands) -> None:
    """Adds the parser of `generate`."""
    parser = actions.add_parser("generate", help="print the KubeSchedulerConfiguration for a configuration")
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
    parser.add_argument("--embed", action="store_true", help="put the content of the three files into the output")
    parser.set_defaults(run=generate)


def validate_files(arguments: argparse.Namespace) -> int:
    """Returns 0 if every file is valid, else 1."""
    files: Sequence[str] = arguments.files
    return max([_validate(file) for file in files])  # all files, also after an invalid one


def _validate(file: str) -> int:
    """Prints a valid file to standard output, problems to standard error."""
    try:
        settings = read_settings(file)
    except CommandError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{file}: valid ({settings.kind}, mode {settings.mode})")
    return 0


def generate(arguments: argparse.Namespace) -> int:
    """Prints the document."""
    if arguments.config and arguments.mode:
        raise CommandError("--config and --mode: the configuration sets the mode")
    settings = read_settings(arguments.config) if arguments.config else default_settings(arguments.mode or "offload")
    trust = Trust(arguments.ca_file, arguments.cert_file, arguments.key_file, arguments.embed)
    host, kubeconfig = arguments.host or "", arguments.scheduler_kubeconfig
    if kubeconfig is None:
        kubeconfig = SCHEDULER_KUBECONFIG[arguments.layout]
    print(scheduler_configuration(settings, arguments.layout, trust, host, kubeconfig), end="")
    return 0


def scheduler_configuration(settings: Settings, layout: str, trust: Trust, host: str = "", kubeconfig: str = "") -> str:
    """The document as text with comments. Raises CommandError for settings that would not work or not be secure."""
    _check(settings, layout, trust)
    lines = [
        f"# kube-scheduler for placement-extender: mode {settings.mode}, layout {layout}. Start it with --config=FILE.",
        "apiVersion: kubescheduler.config.k8s.io/v1",
        "kind: KubeSchedulerConfiguration",
        *_sampling(settings),
        *_connection(kubeconfig),
        *_election(layout),
        *_profiles(settings, layout),
        "",
        "extenders: # they apply to all profiles of this scheduler",
        *_extender_entry(settings, layout, trust, host),
    ]
    return "\n".join(lines) + "\n"


def _check(settings: Settings, layout: str, trust: Trust) -> None:
    tls = settings.server.tls
    if layout == "service" and not tls.cert_file:
        raise CommandError("layout service: set server.tls first, as calls cross the network (`extender certs`)")
    if tls.cert_file and not trust.ca_file:
        raise CommandError(
            "server.tls is set: --ca-file is needed, else kube-scheduler does not verify the extender's certificate"
        )
    if tls.client_ca_file and not (trust.cert_file and trust.key_file):
        raise CommandError("server.tls.clientCAFile is set: --cert-file and --key-file are needed")
    if bool(trust.cert_file) != bool(trust.key_file):
        raise CommandError("--cert-file and --key-file: give both or none")


def _sampling(settings: Settings) -> Iterator[str]:
    yield ""
    if settings.mode == "augment" or settings.rejected_pods.nominate_elsewhere:
        yield "# percentageOfNodesToScore keeps its default, which samples the nodes and is fast. If no node of the sample fits,"
        yield "# rejectedPods.nominateElsewhere nominates the pod to a node outside of it."
    else:
        yield "percentageOfNodesToScore: 100 # with a sample a pod that fits few nodes waits long: rejectedPods.nominateElsewhere is off"


def _connection(kubeconfig: str) -> Iterator[str]:
    if kubeconfig:
        yield ""
        yield "clientConnection:"
        yield f"  kubeconfig: {kubeconfig} # with --config the scheduler ignores its flag --kubeconfig"


def _election(layout: str) -> Iterator[str]:
    if layout == "second-scheduler":
        yield ""
        yield "leaderElection: # another Lease than that of the first scheduler"
        yield "  leaderElect: true"
        yield f"  resourceName: {SECOND_SCHEDULER}"
        yield "  resourceNamespace: kube-system"


def _profiles(settings: Settings, layout: str) -> Iterator[str]:
    disabled = _disabled(settings)
    name = SECOND_SCHEDULER if layout == "second-scheduler" else "default-scheduler"
    if layout != "second-scheduler" and not disabled:
        return
    yield ""
    yield "profiles:"
    yield f"  - schedulerName: {name}"
    if disabled:
        yield "    plugins:"
        yield "      multiPoint: # disables a plugin at all extension points"
        yield "        disabled:"
        yield from (f"          - name: {plugin}" for plugin in disabled)
    if settings.answers.score_scale == "inTree":
        yield "        enabled: # the default weights times ten, as answers.scoreScale is inTree"
        yield from (f"          - {{name: {entry}}}" for entry in _TEN_TIMES)
    yield from _plugin_config(settings)


def _plugin_config(settings: Settings) -> Iterator[str]:
    """Fewer dry runs in the scheduler where the extender chooses the victims, see "What preemption costs"."""
    if settings.mode == "offload" and settings.preemption.mode == "execute":
        yield "    pluginConfig:"
        yield "      - name: DefaultPreemption"
        yield "        args: # each candidate costs a dry run; if none of them helps, the extender searches the other nodes"
        yield from (f"          {name}: {number}" for name, number in CANDIDATES.items())


def _disabled(settings: Settings) -> list[str]:
    """The in-tree plugins that the extender replaces."""
    if settings.mode == "augment":
        return []
    return [plugin for plugin, rule in catalog.replaced_plugins() if rule.is_enabled(settings.rules)]


def _extender_entry(settings: Settings, layout: str, trust: Trust, host: str) -> Iterator[str]:
    server, paths = settings.server, settings.server.paths
    scheme = "https" if server.tls.cert_file else "http"
    offload = settings.mode == "offload"
    yield f"  - urlPrefix: {scheme}://{_address(settings, layout, host)}"
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
    elif settings.quota.rejects:
        why = "without the extender pods would be placed over their quotas"
    yield f"    ignorable: {'false' if offload or settings.quota.rejects else 'true'} # {why}"
    if server.tls.cert_file:
        yield "    enableHTTPS: true"
        yield "    tlsConfig:"
        yield from (f"      {name}: {value}" for name, value in trust.fields())


def _address(settings: Settings, layout: str, host: str) -> str:
    port = settings.server.bind_address.port
    return f"{host or SERVICE_HOST}:{port}" if layout == "service" else f"{host or '127.0.0.1'}:{port}"
