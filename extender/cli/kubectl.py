"""`kubectl placement`: the commands about pods and the service, with the context and the namespace of kubectl.

kubectl runs `kubectl-placement`, and `kubectl_complete-placement` for completions. The commands are the commands of `extender`.
This module gives them kubectl's cluster, and connects them to the service by `kubectl port-forward` to a pod. The API server's
proxy cannot be used:

1. It shows no client certificate, and without a certificate only requests from loopback are answered.
2. It passes on a Host that the service does not know.
3. A NetworkPolicy may keep it out.

The Service has no selector, so this module chooses the pod: among ready pods the leader, which the EndpointSlice names, or the pod
whose kube-scheduler holds its Lease. A tenant can write the labels of a pod, its account, the objects of a namespace and a Secret for them. So pods are searched only in the
namespaces of deploy/, in a namespace that the user names, and in the namespaces of the accounts that the extender's
ClusterRoleBinding names.
https://kubernetes.io/docs/tasks/extend-kubectl/kubectl-plugins/
"""

from __future__ import annotations

import argparse
import re
import shlex
import shutil
import subprocess
import sys
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from http import HTTPStatus
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from threading import Thread
from typing import Final, NamedTuple

import orjson

from extender.cli import completion
from extender.cli.files import access_to, kubectl_file, own_namespace
from extender.cli.main import CommandError, add_commands, run_command, say
from extender.cli.parser import Parser
from extender.cli.progress import progress
from extender.cli.service_client import NoAnswerError
from extender.cli.sources import cluster_of
from extender.compose.process import run_on_loop
from extender.kube.credentials import contexts_of
from extender.kube.errors import BadAccess, KubeError
from extender.kube.listing import read_list
from extender.kube.session import Connection, open_session
from extender.kube.timing import SystemClock
from extender.model.policies import JsonObject
from extender.model.units import listed
from extender.settings.connections import Kube
from extender.wire.api_calls import leader_slice

PROGRAM: Final = "kubectl placement"
COMPLETED: Final = completion.Completed("kubectl-placement", "kubectl_complete-placement")
COMMANDS: Final = frozenset(
    {"explain", "whatif", "groups", "moves", "quota", "policy", "doctor", "domain", "ui", "support-bundle"}
)
# The namespaces of deploy/overlays. Elsewhere labels prove nothing: a tenant may give any label to a pod.
NAMESPACES: Final = ("placement-extender", "placement-shared", "kube-system")
LABELS: Final = "app.kubernetes.io/name=placement-extender,app.kubernetes.io/component=extender"
BINDING: Final = (
    "placement-extender-reader"  # begins the name of the ClusterRoleBinding in every overlay; no tenant may write one
)
LEADER_SLICE: Final = leader_slice("placement-extender")
SECRET: Final = "placement-extender-admin"  # noqa: S105 (a name)
_FILES: Final = {"ca_file": "ca.crt", "cert_file": "tls.crt", "key_file": "tls.key"}  # and what the Secret calls them
_ACCOUNT: Final = "placement-extender"  # in every overlay; as a sidecar the container too has this name
_CONTAINERS: Final = frozenset({"extender", _ACCOUNT})
_PORT: Final = 8888
_LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"  # of schedulers, also of the chart's
_ERROR: Final = re.compile(
    r"""(?:err="|^error: (?!lost connection))(.*?)"?$"""
)  # in a line of kubectl's log, or its last
_FORWARDING: Final = re.compile(r"Forwarding from (127\.0\.0\.1:\d+) ")
_OWN_FILES: Final = "give --ca-file, --cert-file and --key-file"
# In an answer 403 of the API server, also as kubectl prints it.
_FORBIDDEN: Final = re.compile(r'User "(?P<user>[^"]+)" cannot (?P<verb>\w+) resource "(?P<resource>[^"]+)"')
_DENIED: Final = (HTTPStatus.FORBIDDEN, HTTPStatus.UNAUTHORIZED)
_SHOWN: Final = 5  # namespaces by name, and errors of kubectl


def main(argv: Sequence[str] | None = None) -> int:
    """Runs `kubectl-placement` and returns the exit code."""
    given = sys.argv[1:] if argv is None else argv
    arguments = make_parser(given[0] if given else "").parse_args(given)
    # `completion` has no option --kubeconfig: it prints a script and needs no cluster.
    return run_command(_run if "kubeconfig" in arguments else arguments.run, arguments, PROGRAM)


def make_parser(chosen: str) -> _Parser:
    """The parser of one subcommand; of all subcommands, for help, if `chosen` is none."""
    parser = _Parser(
        prog=PROGRAM,
        description="Where pods go, why they wait, and what would help.",
        examples=["explain web-1", "doctor"],
    )
    commands = add_commands(parser, chosen, () if chosen == "completion" else sorted(COMMANDS))
    for name in COMMANDS & parser.inner().keys():
        parser.inner()[name].add_options()
    completion.add_parser(commands, COMPLETED)
    return parser


def _run(arguments: argparse.Namespace) -> int:
    """Runs a command with kubectl's cluster and namespace, and with a service in it."""
    run = arguments.run
    # A file needs neither a cluster nor a service.
    if getattr(arguments, "snapshot", None):
        return int(run(arguments))
    arguments.kubeconfig = kubectl_file(arguments.kubeconfig)
    kube = cluster_of(arguments)
    current = _current_namespace(kube)
    if not getattr(arguments, "namespace", current):
        arguments.namespace = current
    # `moves --plan` computes from the objects of the cluster, so it needs no service.
    if "extender_namespace" not in arguments or arguments.url or getattr(arguments, "plan", False):
        return int(run(arguments))
    with ExitStack() as held, ExitStack() as files:
        try:
            with progress("looks for the service"):
                pod = _find_pod(kube, arguments.extender_namespace)
                # Only without files of the user. The folder lives as long as the command: the key is on disk for
                # seconds, in mode 0600.
                if pod.scheme == "https" and not any(getattr(arguments, name) for name in _FILES):
                    folder = files.enter_context(TemporaryDirectory())
                    vars(arguments).update(_client_files(kube, pod, Path(folder)))
                forward = held.enter_context(_forward(kube, pod))
        except CommandError as error:
            if "unreached" not in arguments:
                raise
            # A support bundle is wanted most where the service cannot be reached.
            arguments.unreached = "; ".join(error.lines)
            return int(run(arguments))
        arguments.forward, arguments.leads = str(pod), pod.leads
        if "account" in arguments:  # of `doctor`, which reviews the permissions of the service, not of the user
            arguments.account = arguments.account or pod.account
        arguments.url, log = forward.url, forward.errors
        # For `ui`, which runs for long: it deletes the key when it has read it, and ends with the port-forward.
        arguments.drop_files, arguments.ended = files.close, forward.has_ended
        try:
            return int(run(arguments))
        except CommandError as error:
            # The forward is up and its pod does not answer. kubectl's own message says more than "connection reset".
            if isinstance(error.__cause__, NoAnswerError) and (problems := log()):
                text = f"pod {pod} does not answer: {'; '.join(problems)}"
                raise CommandError(
                    text, f"see `kubectl -n {pod.namespace} describe pod {pod.name}`, and its log"
                ) from None
            # The port of the forward is random and closed by now, so errors name the pod.
            raise CommandError(*(line.replace(arguments.url, f"pod {pod}") for line in error.lines)) from None


def _current_namespace(kube: Kube) -> str:
    access = access_to(kube)
    try:
        current, namespaces = ("", {"": own_namespace()}) if access.host else contexts_of(access)
    except BadAccess as error:
        remedy = "set one with `kubectl config use-context NAME`, or give --context or --kubeconfig"
        raise CommandError(str(error), remedy) from None
    return namespaces[current]


# ---- the pod of the service


class ServicePod(NamedTuple):
    """A pod of the service, and how it answers."""

    namespace: str
    name: str
    port: int
    scheme: str
    is_running: bool
    is_ready: bool
    account: str
    node: str = ""
    waits_for: str = ""
    leads: bool = False

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

    @classmethod
    def of(cls, pod: JsonObject) -> ServicePod | None:
        """As the liveness probe of the manifest has it; None for a pod without the container."""
        container = next(
            (container for container in pod["spec"]["containers"] if container["name"] in _CONTAINERS), None
        )
        if container is None:
            return None
        probe = (container.get("livenessProbe") or {}).get("httpGet") or {}
        ports = {port.get("name"): port["containerPort"] for port in container.get("ports") or ()}
        port, status = probe.get("port", _PORT), pod.get("status") or {}
        conditions = {condition["type"]: condition["status"] for condition in status.get("conditions") or ()}
        return cls(
            pod["metadata"]["namespace"],
            pod["metadata"]["name"],
            port if isinstance(port, int) else ports.get(port, _PORT),
            probe.get("scheme", "HTTP").lower(),
            status.get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"],
            conditions.get("Ready") == "True",
            # A static pod has no account: its kubeconfig names the user of deploy/overlays/sidecar.
            _ACCOUNT
            if container["name"] == _ACCOUNT
            else f"system:serviceaccount:{pod['metadata']['namespace']}:{_ACCOUNT}",
            (pod.get("spec") or {}).get("nodeName") or "",
            _waits_for(status),
        )


def _waits_for(status: JsonObject) -> str:
    """Why the kubelet does not start a container, with its image; empty where it says nothing."""
    for container in status.get("containerStatuses") or ():
        if reason := ((container.get("state") or {}).get("waiting") or {}).get("reason"):
            return f"{reason}, image {container['image']}"
    return ""


def _lack_image(pods: Sequence[ServicePod]) -> bool:
    return any("Image" in pod.waits_for.partition(",")[0] for pod in pods)


def _find_pod(kube: Kube, namespace: str) -> ServicePod:
    """The pod to ask: the leader, else a ready pod, else a running pod. Raises CommandError."""

    async def find() -> ServicePod:
        async with open_session(access_to(kube), SystemClock()) as session:
            pods = await _pods(session.reads, namespace)
            # Two installations may serve two schedulers. Which one is meant cannot be guessed.
            if len({pod.namespace for pod in pods}) > 1:
                names = ", ".join(sorted({pod.namespace for pod in pods}))
                raise CommandError(
                    f"the extender runs in several namespaces: {names}", "choose with --extender-namespace"
                )
            running = [pod for pod in pods if pod.is_running]
            if not running:
                shown = (f"{pod} ({pod.waits_for})" if pod.waits_for else str(pod) for pod in pods)
                image = ("name your image in the overlay, as deploy/docs/image.md says",) if _lack_image(pods) else ()
                raise CommandError(f"no pod of the extender runs: {', '.join(shown)}", "see `kubectl describe`", *image)
            # A pod that is not ready answers too, and says what it waits for.
            ready = [pod for pod in running if pod.is_ready] or running
            return await _leader(session.reads, ready) if len(ready) > 1 else ready[0]._replace(leads=True)

    try:
        return run_on_loop(find())
    except KubeError as error:
        raise CommandError(f"the API server cannot be read: {error}") from None


async def _pods(connection: Connection, namespace: str) -> list[ServicePod]:
    """The pods of the extender in the given namespace. Raises CommandError for none.

    Without a namespace: in the namespaces of deploy/, then in the namespaces of the accounts with the extender's permissions.
    """
    denied = dict[str, str]()
    if pods := await _pods_in(connection, [namespace] if namespace else NAMESPACES, denied):
        return pods
    if not namespace and (pods := await _pods_in(connection, await _granted(connection), denied)):
        say(f"asks pods in {pods[0].namespace}, the namespace of ClusterRoleBinding {BINDING}…", to=sys.stderr)
        return pods
    # Only to explain: such a pod may belong to a tenant and could give false answers, so it is never asked.
    if not namespace and (claimed := await _pods_in(connection, [""], denied)):
        names = sorted({pod.namespace for pod in claimed})
        raise CommandError(
            f"pods in {listed(names, most=_SHOWN)} have the labels of the extender, which any tenant can write, "
            f"and no ClusterRoleBinding {BINDING}… that can be read names an account there",
            "choose the namespace of the extender with --extender-namespace",
        )
    if denied:
        raise CommandError(
            f"no pod of the extender was found, and this account may not list pods in {', '.join(denied)}",
            *_grant(namespace, next(iter(denied.values()))),
        )
    raise CommandError(
        f"no pod of the extender was found in {namespace or 'any namespace'} (labels {LABELS})",
        "install it as deploy/docs/install.md says, or give the address of one that runs elsewhere with --url",
    )


def _grant(namespace: str, answer: str) -> tuple[str, str]:
    """How an administrator gives the account of an answer 403 what the commands need; without a namespace in any."""
    denied = _FORBIDDEN.search(answer)
    where = f"kubectl -n {namespace or 'NAMESPACE-OF-THE-EXTENDER'}"
    return (
        f"an administrator grants it, with what else this command needs: {where} apply -f deploy/kubectl/role.yaml",
        f"and: {where} create rolebinding NAME --role=placement-extender-kubectl --user={shlex.quote(denied['user']) if denied else 'USER'}",
    )


async def _pods_in(connection: Connection, namespaces: Iterable[str], denied: dict[str, str]) -> list[ServicePod]:
    """The pods with the labels; "" is every namespace. Adds namespaces that may not be read to ``denied``, with the answer."""
    pods = list[ServicePod]()
    for place in namespaces:
        path = f"/api/v1/namespaces/{place}/pods" if place else "/api/v1/pods"
        try:
            items = await read_list(connection, path, labelSelector=LABELS)
        except KubeError as error:
            # Only a lack of permission for one namespace is no reason to give up on the others.
            if error.status not in _DENIED:
                raise
            denied[place or "all namespaces"] = str(error)
        else:
            pods += filter(None, (ServicePod.of(orjson.loads(item)) for item in items))
    return pods


async def _granted(connection: Connection) -> list[str]:
    """The namespaces of the accounts in the extender's ClusterRoleBinding; empty if the user may not read it."""
    try:
        items = await read_list(connection, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings")
    except KubeError:
        return []
    bindings = [binding for item in items if (binding := orjson.loads(item))["metadata"]["name"].startswith(BINDING)]
    subjects = [subject for binding in bindings for subject in binding.get("subjects") or ()]
    return sorted(
        {
            subject["namespace"]
            for subject in subjects
            if subject["kind"] == "ServiceAccount" and subject.get("namespace")
        }
    )


async def _leader(connection: Connection, pods: Sequence[ServicePod]) -> ServicePod:
    """The leader: by the EndpointSlice, or by the Lease of the kube-scheduler in the pod; the first pod if neither can be read.

    Every replica explains, but only the leader gets the scheduler's calls, so it alone knows which pods are assumed.
    """
    path = f"/apis/discovery.k8s.io/v1/namespaces/{pods[0].namespace}/endpointslices/{LEADER_SLICE}"
    try:
        endpoints = orjson.loads(await connection.call("GET", path)).get("endpoints") or ()
    except KubeError as error:
        endpoints = ()
        if error.status in _DENIED:
            say(
                f"this account may not get EndpointSlice {LEADER_SLICE} in {pods[0].namespace}, which names the leader",
                to=sys.stderr,
            )
    named = {str((endpoint.get("targetRef") or {}).get("name")) for endpoint in endpoints}
    names = named or await _schedulers(connection, pods)
    return next((pod._replace(leads=True) for pod in pods if pod.name in names), pods[0])


async def _schedulers(connection: Connection, pods: Sequence[ServicePod]) -> set[str]:
    """The names of the pods whose kube-scheduler holds its Lease; empty if Leases may not be listed."""
    try:
        leases = [orjson.loads(item) for item in await read_list(connection, _LEASES)]
    except KubeError:
        return set()
    names = set[str]()
    for lease in leases:
        # kube-scheduler writes HOST_UUID. The host is the pod, or with the host's network the node, which other components name too.
        host = str((lease.get("spec") or {}).get("holderIdentity") or "").rpartition("_")[0]
        is_schedulers = lease["metadata"]["name"].endswith("scheduler")
        names |= {pod.name for pod in pods if host and (host == pod.name or (is_schedulers and host == pod.node))}
    return names


def _client_files(kube: Kube, pod: ServicePod, folder: Path) -> dict[str, str]:
    """The certificates of the Secret as files, by argument. Raises CommandError."""
    where = f"Secret {pod.namespace}/{SECRET}"
    remedy = f"{_OWN_FILES}, or make the Secret as deploy/docs/verify.md says"

    async def read() -> JsonObject:
        async with open_session(access_to(kube), SystemClock()) as session:
            body = await session.reads.call("GET", f"/api/v1/namespaces/{pod.namespace}/secrets/{SECRET}")
            data: JsonObject = orjson.loads(body).get("data") or {}
            return data

    try:
        data = run_on_loop(read())
    except KubeError as error:
        asks = f"pod {pod} asks for a client certificate, and"
        if error.status in _DENIED:
            text = f"{asks} this account may not get {where}: {error}"
            raise CommandError(text, *_grant(pod.namespace, str(error)), _OWN_FILES) from None
        raise CommandError(f"{asks} {where} cannot be read: {error}", remedy) from None
    for name in _FILES.values():
        if name not in data:
            raise CommandError(f"{where}: data: {name} is missing", remedy)
        # The mode first: written and then restricted, the key could be read in between.
        (folder / name).touch(0o600)
        (folder / name).write_bytes(b64decode(data[name]))
    return {argument: str(folder / name) for argument, name in _FILES.items()}


class _Forward(NamedTuple):
    """A port-forward. ``errors``: what kubectl has said so far, the last few."""

    url: str
    errors: Callable[[], list[str]]
    has_ended: Callable[[], bool]


@contextmanager
def _forward(kube: Kube, pod: ServicePod) -> Iterator[_Forward]:
    """A port-forward to a pod, while the block runs. Raises CommandError."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        raise CommandError(
            "kubectl is not in PATH: it makes the port-forward", "or give the address of the service with --url"
        )
    command = [
        kubectl,
        "port-forward",
        f"--namespace={pod.namespace}",
        "--address=127.0.0.1",
        "--pod-running-timeout=5s",
    ]
    # Several files joined with a colon come from KUBECONFIG, which kubectl inherits; the option takes a single file.
    command += [f"--kubeconfig={kube.kubeconfig}"] if kube.kubeconfig and ":" not in kube.kubeconfig else []
    command += [f"--context={kube.context}"] if kube.context else []
    with TemporaryFile() as errors:

        def log() -> list[str]:
            errors.seek(0)
            lines = errors.read().decode(errors="replace").splitlines()
            said = dict.fromkeys(match[1] for line in lines if (match := _ERROR.search(line)))
            return list(said)[-_SHOWN:]

        with subprocess.Popen(  # noqa: S603 (the user's own kubectl)
            [*command, f"pod/{pod.name}", f":{pod.port}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as running:
            stdout = running.stdout
            assert stdout is not None  # noqa: S101 (for the type checker)
            # kubectl prints a line for each connection. Unread, they would fill the pipe, and kubectl would stop.
            drain = Thread(target=lambda: [None for _ in stdout], name="port-forward", daemon=True)
            try:
                match = _FORWARDING.match(stdout.readline())
                if match is None:
                    # kubectl has ended: its errors are complete.
                    running.wait()
                    said = log()
                    if denied := next(filter(None, map(_FORBIDDEN.search, said)), None):
                        text = f"this account may not {denied['verb']} {denied['resource']} in {pod.namespace}"
                        raise CommandError(
                            f"{text}, for a port-forward to pod {pod.name}", *_grant(pod.namespace, denied[0])
                        )
                    raise CommandError(f"pod {pod} cannot be reached by a port-forward", *said)
                drain.start()
                yield _Forward(f"{pod.scheme}://{match[1]}", log, lambda: running.poll() is not None)
            finally:
                running.terminate()
                running.wait()
                if drain.is_alive():
                    drain.join()


class _Parser(Parser):
    """The parser of a command, with kubectl's options."""

    def add_options(self) -> None:
        """Adds to each command the options of kubectl that it lacks."""
        inner = self.inner()
        for command in inner.values():
            command.add_options()
        known = {action.dest for action in self.arguments()}
        if not inner and "kubeconfig" not in known:
            self.add_argument("--kubeconfig", metavar="FILE", default="", help="access to the cluster (as kubectl)")
            self.add_argument(
                "--context", metavar="NAME", default="", help="context of the kubeconfig (the current one)"
            )
        for action in self.arguments():
            if action.dest == "url":
                action.help = "URL of the service, in place of a port-forward to one of its pods"
        if "url" in known:
            text = (
                "namespace of the extender (default: found in the namespaces of deploy/, or by its ClusterRoleBinding)"
            )
            self.add_argument("--extender-namespace", metavar="NS", default="", help=text)


def complete(argv: Sequence[str] | None = None) -> int:
    """Runs `kubectl_complete-placement`: kubectl passes the words before the cursor, and last the word at the cursor."""
    names = [*sorted(COMMANDS), "version", "completion"]
    return completion.complete(make_parser, names, sys.argv[1:] if argv is None else argv, PROGRAM)
