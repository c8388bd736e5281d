"""`extender config generate`: the KubeSchedulerConfiguration that fits the configuration of the extender, for a layout.

Never https without an authority: kube-scheduler would then verify nothing and say nothing.
https://kubernetes.io/docs/reference/config-api/kube-scheduler-config.v1/
"""

import argparse
import base64
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, get_args

from extender.cli.command import CommandError, Commands
from extender.cli.files import read_bytes, read_settings
from extender.rules import catalog
from extender.settings import Mode, Settings, default_settings
from extender.verbs.prioritize import has_scores

LAYOUTS: Final = ("sidecar", "second-scheduler", "service")
SECOND_SCHEDULER: Final = "placement-scheduler"
SERVICE_HOST: Final = "placement-extender.placement-extender.svc"
# kube-scheduler ignores --kubeconfig beside --config, so the document names the file; a pod needs none.
_KUBEADM: Final = "/etc/kubernetes/scheduler.conf"
SCHEDULER_KUBECONFIG: Final = {"sidecar": _KUBEADM, "second-scheduler": "", "service": _KUBEADM}

_TEN_TIMES: Final = (  # the default weights times ten: config/README.md, "The scale of scores"
    "TaintToleration, weight: 30",
    "NodeAffinity, weight: 20",
    "NodeResourcesFit, weight: 10",
    "NodeResourcesBalancedAllocation, weight: 10",
    "ImageLocality, weight: 10",
)


@dataclass(frozen=True, slots=True)
class Trust:
    """Files as kube-scheduler sees them; `embed`: their content goes into the configuration instead."""

    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    embed: bool = False

    def fields(self) -> Iterator[tuple[str, str]]:
        """The fields of tlsConfig. Raises CommandError for a file to embed that cannot be read."""
        for name, path in (("ca", self.ca_file), ("cert", self.cert_file), ("key", self.key_file)):
            if path and self.embed:
                yield f"{name}Data", base64.b64encode(read_bytes(path)).decode()
            elif path:
                yield f"{name}File", path


def add_action(actions: Commands) -> None:
    """An action of `config`."""
    parser = actions.add_parser("generate", help="print the KubeSchedulerConfiguration that goes with a configuration")
    parser.add_argument("--config", metavar="FILE", help="the configuration of the extender; without it all defaults")
    parser.add_argument("--mode", choices=get_args(Mode), help="instead of a configuration: all defaults of that mode")
    parser.add_argument("--layout", choices=LAYOUTS, default="sidecar", help="where the extender runs (%(default)s)")
    parser.add_argument(
        "--host", help=f"in a service layout, the host name by which the scheduler calls the extender ({SERVICE_HOST})"
    )
    for name, what in (
        ("ca", "the authority of the server certificate"),
        ("cert", "the client's"),
        ("key", "the client's"),
    ):
        parser.add_argument(f"--{name}-file", metavar="FILE", default="", help=f"{what}, as kube-scheduler sees it")
    parser.add_argument(
        "--scheduler-kubeconfig",
        metavar="FILE",
        help=f'how kube-scheduler reaches the API server ({_KUBEADM}, in the layout second-scheduler "": its service account)',
    )
    parser.add_argument("--embed", action="store_true", help="put the content of these files into the output")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print it."""
    if arguments.config and arguments.mode:
        raise CommandError("--config and --mode: the configuration has a mode of its own")
    settings = read_settings(arguments.config) if arguments.config else default_settings(arguments.mode or "offload")
    trust = Trust(arguments.ca_file, arguments.cert_file, arguments.key_file, arguments.embed)
    host, kubeconfig = arguments.host or "", arguments.scheduler_kubeconfig
    if kubeconfig is None:
        kubeconfig = SCHEDULER_KUBECONFIG[arguments.layout]
    print(scheduler_configuration(settings, arguments.layout, trust, host, kubeconfig), end="")
    return 0


def scheduler_configuration(settings: Settings, layout: str, trust: Trust, host: str = "", kubeconfig: str = "") -> str:
    """The document as text with comments. Raises CommandError for settings that would not work, or not be secure."""
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
        "extenders: # for all profiles of this scheduler; there is no way to say which",
        *_stanza(settings, layout, trust, host),
    ]
    return "\n".join(lines) + "\n"


def _check(settings: Settings, layout: str, trust: Trust) -> None:
    tls = settings.server.tls
    if layout == "service" and not tls.cert_file:
        raise CommandError("a service answers across the network: set server.tls first (`extender certs` makes files)")
    if tls.cert_file and not trust.ca_file:
        raise CommandError(
            "server.tls is set: --ca-file is needed, as without an authority kube-scheduler verifies nothing"
        )
    if tls.client_ca_file and not (trust.cert_file and trust.key_file):
        raise CommandError("server.tls.clientCAFile is set: --cert-file and --key-file are needed")
    if bool(trust.cert_file) != bool(trust.key_file):
        raise CommandError("--cert-file and --key-file go together")


def _sampling(settings: Settings) -> Iterator[str]:
    yield ""
    if settings.mode == "augment" or settings.rejected_pods.nominate_elsewhere:
        yield "# percentageOfNodesToScore is left alone: the default sampling is the scheduler's fastest, and a pod that fits"
        yield "# only outside of the sample is nominated past it (rejectedPods.nominateElsewhere)."
    else:
        yield "percentageOfNodesToScore: 100 # rejectedPods.nominateElsewhere is off: a pod that fits a few nodes only would wait for them"


def _connection(kubeconfig: str) -> Iterator[str]:
    if kubeconfig:
        yield ""
        yield "clientConnection:"
        yield f"  kubeconfig: {kubeconfig} # beside --config the scheduler ignores its flag --kubeconfig"


def _election(layout: str) -> Iterator[str]:
    if layout == "second-scheduler":
        yield ""
        yield "leaderElection: # a Lease of its own, beside that of the first scheduler"
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
        yield "      multiPoint: # where the defaults are enabled: a plugin disabled here is not set up at all"
        yield "        disabled:"
        yield from (f"          - name: {plugin}" for plugin in disabled)
    if settings.answers.score_scale == "inTree":
        yield "        enabled: # the default weights times ten, as answers.scoreScale is inTree"
        yield from (f"          - {{name: {entry}}}" for entry in _TEN_TIMES)


def _disabled(settings: Settings) -> list[str]:
    """The plugins that the extender replaces."""
    if settings.mode == "augment":
        return []
    return [plugin for plugin, rule in catalog.replaced_plugins() if rule.is_enabled(settings.rules)]


def _stanza(settings: Settings, layout: str, trust: Trust, host: str) -> Iterator[str]:
    server, paths = settings.server, settings.server.paths
    scheme = "https" if server.tls.cert_file else "http"
    offload = settings.mode == "offload"
    yield f"  - urlPrefix: {scheme}://{_address(settings, layout, host)}"
    yield f"    filterVerb: {paths.filter.lstrip('/')} # joined with urlPrefix; server.paths of the extender"
    if has_scores(settings):
        yield f"    prioritizeVerb: {paths.prioritize.lstrip('/')} # leaving it out is dearer than an empty answer"
        yield "    weight: 1 # scores are 0 to 10, and the scheduler multiplies them by 10 times this weight"
    else:
        yield "    # No prioritizeVerb: placement is decisive, so there is nothing to score that filter has not preferred."
    yield f"    preemptVerb: {paths.preempt.lstrip('/')}"
    if paths.bind:
        yield f"    bindVerb: {paths.bind.lstrip('/')} # the extender needs leave to create pods/binding"
    yield "    nodeCacheCapable: true # send names, not whole nodes"
    yield f"    httpTimeout: {math.floor(server.request_timeout) + 1}s # longer than server.requestTimeout ({server.request_timeout})"
    why = (
        "a pod placed without the extender would be placed without its constraints"
        if offload
        else "the plugins still hold them"
    )
    yield f"    ignorable: {'false' if offload else 'true'} # {why}"
    if server.tls.cert_file:
        yield "    enableHTTPS: true"
        yield "    tlsConfig:"
        yield from (f"      {name}: {value}" for name, value in trust.fields())


def _address(settings: Settings, layout: str, host: str) -> str:
    port = settings.server.bind_address.port
    return f"{host or SERVICE_HOST}:{port}" if layout == "service" else f"{host or '127.0.0.1'}:{port}"
