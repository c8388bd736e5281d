"""`extender doctor`: checks an installation from outside, and prints a remedy for each problem. Changes nothing.

Examines the running service, the scheduler's configuration and the cluster, as far as it can reach them. Exit codes:
0 no problems (there may be hints), 1 warnings, 2 errors.
"""

import argparse
import asyncio
import base64
import binascii
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import orjson

from extender.certificates.rotation import is_verified, last_day
from extender.cli.files import access_to, is_file, own_namespace, read_settings, read_yaml
from extender.cli.groups import read_unbound_groups
from extender.cli.main import CommandError, Commands, say
from extender.cli.service_client import (
    ServiceError,
    add_trust,
    read_service,
    trust_of,
    try_as_scheduler,
    webhook_fault,
)
from extender.cli.sources import add_cluster, add_output, cluster_of, print_document, table
from extender.compose.process import run_on_loop
from extender.doctor.facts import (
    Facts,
    Finding,
    Permission,
    PolicyFacts,
    PolicyInUse,
    SchedulingQueue,
    ago,
    needed_permissions,
)
from extender.doctor.policies import examine_groups, examine_policies, examine_quotas
from extender.doctor.scheduler_config import entry_of, examine_scheduler
from extender.doctor.service import examine_differences, examine_service
from extender.doctor.surroundings import EXPIRES_SOON, examine_schedulers, examine_surroundings
from extender.kube.credentials import Access
from extender.kube.diagnosis import AccessReviews, read_pod_conditions
from extender.kube.effects import Lease
from extender.kube.errors import KubeError, NotFound, Unreachable
from extender.kube.listing import read_list
from extender.kube.session import Connection, Session, open_session
from extender.kube.timing import SystemClock
from extender.kube.writer import Writer
from extender.model.objects import PodQuota
from extender.model.policies import CLUSTER_KIND, GROUP, VERSION, InvalidPolicy, Policy
from extender.model.units import counted
from extender.server.transport.tls import readable_by_all
from extender.settings.configuration import Settings
from extender.settings.connections import Kube
from extender.settings.jobs import LeaderElection
from extender.wire.errors import WireError
from extender.wire.objects.kinds import GROUP_PLACEMENTS, RESOURCE_QUOTAS, is_policy_kind, watched_kinds
from extender.wire.policies.policies_v1 import PolicyError, read_policy, spec_fields
from extender.wire.webhook_configurations import GROUP as WEBHOOKS_GROUP
from extender.wire.webhook_configurations import MUTATING, VALIDATING

_DENIED: Final = (HTTPStatus.FORBIDDEN, HTTPStatus.UNAUTHORIZED)
_DEFAULT_SCHEDULER: Final = "default-scheduler"
_LOCAL: Final = frozenset({"127.0.0.1", "::1", "localhost"})
_PARTS: Final = ("ca", "cert", "key")  # of tlsConfig
_NAMESPACE: Final = 2  # of the parts of "system:serviceaccount:NAMESPACE:NAME"
_RANK: Final = {"info": 0, "warning": 1, "error": 2}
_EVERYWHERE: Final = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 (distinguished from other addresses, not bound to)


def add_parser(commands: Commands) -> None:
    """Adds the parser. The defaults are for the machine of the service."""
    parser = commands.add_parser("doctor", help="check an installation, and print a remedy for each problem")
    parser.add_argument("--url", help="URL of the running service (server.bindAddress of --config, on this machine)")
    parser.add_argument("--config", metavar="FILE", help="configuration file to compare with the running service")
    parser.add_argument("--scheduler-config", metavar="FILE", help="kube-scheduler's --config file")
    add_cluster(parser, parser, "access to the cluster (kube.kubeconfig of the service, else as kubectl)")
    parser.add_argument(
        "--as",
        dest="account",
        default="",
        help="the service's account, such as system:serviceaccount:kube-system:placement-extender",
    )
    parser.add_argument("--no-cluster", action="store_true", help="do not connect to the API server")
    add_trust(parser)
    add_output(parser, "text")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Returns 0, 1 or 2, by the worst finding."""
    findings, checked = examine(arguments)
    findings.sort(key=lambda finding: -_RANK[finding.severity])
    _print(findings, checked, arguments.output)
    return max((_RANK[finding.severity] for finding in findings), default=0)


def examine(arguments: argparse.Namespace) -> tuple[list[Finding], list[str]]:
    """The findings, and the parts that could be checked."""
    configured = read_settings(arguments.config) if arguments.config else None
    scheduler = _scheduler_document(arguments.scheduler_config) if arguments.scheduler_config else None
    findings: list[Finding] = []
    checked: list[str] = []
    facts = Facts(configured or Settings(), time.time())
    url = arguments.url or _address(facts.settings)
    try:
        state = read_service(url, trust_of(arguments))
        # From here on the settings are those of the running service; the file may have changed since its start.
        clocks = {"the service": state.date - facts.now} if state.date is not None else {}
        facts = replace(facts, settings=state.settings, readiness=state.readiness, samples=state.samples, clocks=clocks)
        findings += examine_differences(configured, state.settings) if configured is not None else ()
        checked.append(f"service {url}")
    except ServiceError as error:
        findings.append(Finding("error", error.check, str(error), error.remedy))
    findings += _exposed_keys({configured.server.tls.key_file if configured else "", arguments.key_file})
    if not arguments.no_cluster:
        try:
            cluster = _ClusterAccess.of(arguments, url, facts.settings)
            facts = run_on_loop(_with_cluster(facts, cluster, scheduler or {}))
            checked.append("cluster")
        except KubeError as error:
            remedy = "give a kubeconfig with --kubeconfig, or skip the cluster with --no-cluster"
            findings.append(Finding("error", "cluster", f"the API server cannot be read: {error}", remedy))
    if scheduler is not None:
        nodes = int(facts.total("extender_index_entries", kind="nodes"))
        findings += examine_scheduler(scheduler, facts.settings, nodes)
        entry = entry_of(scheduler.get("extenders") or (), facts.settings) or {}
        tried = _examine_tls(entry, url, facts)
        findings += tried or ()
        unseen = " without its certificates, which are not on this machine" if tried is None else ""
        checked.append(f"scheduler configuration {arguments.scheduler_config}{unseen}")
    findings += [
        *examine_service(facts),
        *examine_schedulers(facts, None if scheduler is None else _profiles(scheduler)),
        *examine_surroundings(facts),
        *examine_policies(facts),
        *examine_quotas(facts),
        *examine_groups(facts),
    ]
    return findings, checked


def _scheduler_document(path: str) -> Mapping[str, Any]:
    document = read_yaml(path)
    if not isinstance(document, dict):
        raise CommandError(f"{path}: expected a mapping")
    return document


def _profiles(scheduler: Mapping[str, Any] | None) -> frozenset[str]:
    profiles = (scheduler or {}).get("profiles") or [{}]
    return frozenset(str(profile.get("schedulerName", _DEFAULT_SCHEDULER)) for profile in profiles)


class _ClusterAccess(NamedTuple):
    """The access to the API server and the account to review; `uncertain` describes an account that is a guess."""

    access: Access
    account: str = ""
    uncertain: str = ""
    is_here: bool = False  # the service runs on this machine, as far as its address tells

    @property
    def namespace(self) -> str:
        """The namespace of the service's pod, as far as the account or this pod tells; else empty."""
        parts = self.account.split(":")
        return (
            parts[_NAMESPACE]
            if parts[:2] == ["system", "serviceaccount"] and len(parts) > _NAMESPACE
            else own_namespace("")
        )

    @classmethod
    def of(cls, arguments: argparse.Namespace, url: str, settings: Settings) -> "_ClusterAccess":
        """The service's own access if it is known, so that its permissions are reviewed, not those of the user.

        It is known if this machine has the kubeconfig of the running settings, or if a service without one runs on this
        machine and so uses the default.
        """
        own, given, account = settings.kube.kubeconfig, arguments.kubeconfig, arguments.account
        # Only in a pod the leader keeps the Service; its loopback address is that of a port-forward.
        is_here = urlsplit(url).hostname in _LOCAL and not settings.leader_election.service and not arguments.forward
        if account or given or arguments.context:
            is_own = bool(account) or given == own
            return cls(
                access_to(cluster_of(arguments)),
                account,
                "" if is_own else f"the account of {given or arguments.context}",
                is_here,
            )
        if own and is_file(own):
            return cls(access_to(settings.kube), is_here=is_here)
        return cls(access_to(Kube()), "", "" if is_here and not own else "the account of this command", is_here)


def _address(settings: Settings) -> str:
    """The URL of a service with these settings, from its own machine."""
    bound = settings.server.bind_address
    # A service that listens on all addresses is reachable on loopback.
    host = "127.0.0.1" if bound.host in _EVERYWHERE else bound.host
    scheme = "https" if settings.server.tls.cert_file else "http"
    return f"{scheme}://[{host}]:{bound.port}" if ":" in host else f"{scheme}://{host}:{bound.port}"


async def _with_cluster(facts: Facts, cluster: _ClusterAccess, scheduler: Mapping[str, Any]) -> Facts:
    settings = facts.settings
    # A list of bound pods is expensive, and is used only to explain why filter was never called.
    is_called = facts.samples is None or facts.total("extender_requests_total", verb="filter") > 0
    async with open_session(cluster.access, SystemClock()) as session:
        reviews = AccessReviews(session.reads, cluster.account)
        there = await reviews.server_time()
        clocks = {} if there is None else {"the API server": there.timestamp() - time.time()}
        denied = await _denied(reviews, settings)
        account = cluster.uncertain if denied is not None else cluster.account
        facts = replace(facts, denied=denied, clocks={**facts.clocks, **clocks}, account=account)
        try:
            facts = replace(facts, queue=await _queue(session, facts, scheduler, is_called=is_called))
        except KubeError as error:
            if error.status not in _DENIED:
                raise
            facts = replace(facts, unread_pods=str(error))
        if settings.policies.enabled:
            policies = await read_policy_facts(session.reads, settings, is_here=cluster.is_here)
            facts = replace(facts, policies=policies, groups=await read_unbound_groups(session.reads, settings))
        if settings.quota.enabled:
            facts = replace(facts, quotas=await _quotas(session))
        lease = await _lease(session, settings.leader_election, cluster.namespace)
        if lease is not None:
            age = 0.0 if lease.renew_time is None else facts.now - lease.renew_time.timestamp()
            facts = replace(facts, lease_holder=lease.holder, lease_age=age)
        return facts


async def _denied(reviews: AccessReviews, settings: Settings) -> Sequence[Permission] | None:
    """The needed permissions that the account lacks; None where this command may not review another account."""
    try:
        return [one for one in needed_permissions(settings) if not await reviews.is_allowed(*one.review_arguments)]
    except KubeError as error:
        if error.status in _DENIED:
            return None
        raise


async def _queue(session: Session, facts: Facts, scheduler: Mapping[str, Any], *, is_called: bool) -> SchedulingQueue:
    """What the pods of this scheduler's profiles show. Raises KubeError."""
    pods = await read_pod_conditions(session.reads, "spec.nodeName=")
    pods += [] if is_called else await read_pod_conditions(session.reads, "spec.nodeName!=")
    started, profiles = facts.total("process_start_time_seconds"), _profiles(scheduler)
    ours = [pod for pod in pods if (pod.spec.scheduler_name or _DEFAULT_SCHEDULER) in profiles]
    asked = {one.labels["scheduler"] for one in facts.series("extender_scheduler_decisions_total") if one.value}
    called_at = facts.latest("extender_last_request_timestamp_seconds") if asked <= profiles else 0.0
    untried = [pod.untried_since for pod in ours if pod.untried_since]
    entries = scheduler.get("extenders") or ()
    others = [str(each["urlPrefix"]) for each in entries if each is not entry_of(entries, facts.settings)]
    kubeconfig = str((scheduler.get("clientConnection") or {}).get("kubeconfig") or "")
    return SchedulingQueue(
        scheduled=sum(pod.scheduled_at > started for pod in ours),
        rejected=tuple(sorted({pod.rejection for pod in ours if pod.rejection})),
        # Without the scheduler's configuration those of all schedulers, which name the address that they call.
        failed=tuple(
            pod.failure
            for pod in (ours if scheduler else pods)
            if pod.failure and not any(prefix in pod.failure for prefix in others)
        ),
        untried=len(untried),
        untried_since=min(untried, default=0.0),
        tried_at=max([called_at, *(pod.tried_at for pod in ours)]),
        lost_kubeconfig="" if is_file(kubeconfig) else kubeconfig,
    )


def _examine_tls(entry: Mapping[str, Any], url: str, facts: Facts) -> list[Finding] | None:
    """Findings about the files with which kube-scheduler calls the service; None where this machine does not have them."""
    tls, address = entry.get("tlsConfig") or {}, urlsplit(str(entry.get("urlPrefix", "")))
    pem = {part: _decoded(tls.get(f"{part}Data")) or _content(str(tls.get(f"{part}File", ""))) for part in _PARTS}
    if any(tls.get(f"{part}File") and not content for part, content in pem.items()):
        return None
    findings: list[Finding] = []
    ends = {part: last_day(pem[part]) for part in ("ca", "cert")}
    for part, end in ends.items():
        if end is not None and 0 < end - facts.now < EXPIRES_SOON:
            problem = f"the certificate in {part}File of the scheduler's tlsConfig expires in {ago(end - facts.now)}"
            remedy = "renew it (`extender certs`, or cert-manager), and restart kube-scheduler"
            findings.append(Finding("warning", "certificate", problem, remedy))
    if pem["ca"] and facts.samples is not None and url.startswith("https:"):
        with suppress(OSError):
            fault = try_as_scheduler(url, str(tls.get("serverName") or address.hostname), pem, ends["cert"])
            findings += [] if fault is None else [Finding("error", "scheduler", *fault)]
    return findings


async def _quotas(session: Session) -> Sequence[PodQuota] | None:
    """The quotas that can be read; None where they may not be read: the missing permission is a finding."""
    try:
        items = await read_list(session.reads, RESOURCE_QUOTAS.path)
    except KubeError as error:
        if error.status in _DENIED:
            return None
        raise
    found: list[PodQuota] = []
    for item in items:
        with suppress(WireError):  # a field that cannot be read, which a metric of the service counts
            found.append(RESOURCE_QUOTAS.decode_object(item))
    return found


async def _lease(session: Session, settings: LeaderElection, namespace: str) -> Lease | None:
    """The Lease of the replicas; one that does not exist has no holder. None where it is not known, or may not be read."""
    namespace = settings.lease_namespace or namespace
    if not settings.enabled or not namespace:
        return None
    try:
        return await Writer(session.reads, "doctor", "doctor").get_lease(namespace, settings.lease_name)
    except NotFound:
        return Lease(namespace, settings.lease_name)
    except KubeError as error:
        if error.status in _DENIED:
            return None
        raise


def _exposed_keys(paths: Iterable[str]) -> Iterator[Finding]:
    """A finding for each private key on this machine that every account may read."""
    for path in sorted(paths):
        if path and readable_by_all(path):
            yield Finding("warning", "key", f"every account of this machine can read {path}", f"chmod 600 {path}")


def _print(findings: Sequence[Finding], checked: Sequence[str], form: str) -> None:
    rows = [
        {"severity": one.severity, "check": one.check, "problem": one.problem, "remedy": one.remedy} for one in findings
    ]
    if form in {"json", "yaml"}:
        print_document({"checked": checked, "findings": rows}, form)
        return
    if form == "wide":
        lines = table(
            [tuple(map(str.upper, row)) for row in rows[:1]] + [tuple(row.values()) for row in rows], indent=""
        )
        say(*lines) if rows else None
    else:
        for one in findings:
            say(f"{one.severity}: {one.check}: {one.problem}", f"    {one.remedy}")
    counts = [counted(sum(one.severity == name for one in findings), name) for name in ("error", "warning")]
    say(f"{', '.join(counts)}; checked: {', '.join(checked) or 'nothing'}")


JsonObject = dict[str, Any]
_Get = Callable[..., Awaitable[JsonObject | None]]

_PAGE: Final = 500  # policies of each kind; a diagnosis must not read a whole large cluster
_CONFIGURATIONS: Final = {
    MUTATING: "MutatingWebhookConfiguration",
    VALIDATING: "ValidatingWebhookConfiguration",
}


async def read_policy_facts(connection: Connection, settings: Settings, *, is_here: bool) -> PolicyFacts:
    """What is known about the policies of these settings. Raises ``KubeError`` if the API server cannot be reached.

    ``is_here``: the service runs on this machine, so its loopback addresses can be tried.
    """
    get = partial(_read, connection)
    not_served, policies = list[str](), list[PolicyInUse]()
    for each in watched_kinds(settings):
        if not is_policy_kind(each) and each.kind is not GROUP_PLACEMENTS:
            continue
        group, resource = each.kind.group, each.kind.resource
        found = await get(each.kind.path, {"limit": str(_PAGE if is_policy_kind(each) else 1)})
        if found == {}:
            not_served.append(f"{resource}.{group}")
        for item in (found or {}).get("items") or () if is_policy_kind(each) else ():
            policy = _policy({**item, "apiVersion": f"{group}/{VERSION}"}, each.api_kind, settings)
            policies.append(PolicyInUse(policy, (item.get("status") or {}).get("matchedPods")))
    webhook = settings.policies.webhook
    configurations = {
        f"{kind} {webhook.configuration}": await get(f"/apis/{WEBHOOKS_GROUP}/v1/{resource}/{webhook.configuration}")
        for resource, kind in _CONFIGURATIONS.items()
    }
    clients = {
        name: [each.get("clientConfig") or {} for each in found.get("webhooks") or ()]
        for name, found in configurations.items()
        if found
    }
    leaf = await _serving_certificate(get, settings, clients)
    faults = {
        url: await asyncio.to_thread(webhook_fault, url, _decoded(one.get("caBundle")))
        for each in clients.values()
        for one in each
        if (url := one.get("url")) and (is_here or urlsplit(url).hostname not in _LOCAL)
    }
    return PolicyFacts(
        not_served=tuple(not_served),
        dropped=_dropped(await get(f"/openapi/v3/apis/{GROUP}/{VERSION}")),
        no_configuration=tuple(name for name, found in configurations.items() if found == {}),
        untrusted=tuple(
            name
            for name, each in clients.items()
            if leaf and not all(is_verified(leaf, _decoded(one.get("caBundle"))) for one in each)
        ),
        lost_urls={url: why for url, (why, is_sure) in faults.items() if why and is_sure},
        unproven={url: why for url, (why, is_sure) in faults.items() if why and not is_sure},
        services={name: await _ready_endpoints(get, *name.split("/")) for name in _services(clients)},
        policies=tuple(policies),
    )


async def _read(connection: Connection, path: str, query: Mapping[str, str] | None = None) -> JsonObject | None:
    """The object as JSON: empty where it does not exist, None where it may not be read."""
    try:
        found = orjson.loads(await connection.call("GET", path, query=query or {}))
    except NotFound:
        return {}
    except KubeError as error:
        if error.status in _DENIED:
            return None
        raise
    except orjson.JSONDecodeError as error:
        raise Unreachable(f"GET {path}: {error}") from error
    return found if isinstance(found, dict) else None


def _policy(item: JsonObject, kind: str, settings: Settings) -> Policy | InvalidPolicy:
    try:
        return read_policy(item, settings.limits, kind=kind)
    except PolicyError as error:
        return error.invalid


def _dropped(openapi: JsonObject | None) -> dict[str, tuple[str, ...]]:
    """By kind the fields of a spec that the published schema does not have; nothing where no schema is published."""
    found = {}
    for name, schema in ((openapi or {}).get("components") or {}).get("schemas", {}).items():
        kind = name.rpartition(".")[2]
        fields = ((schema.get("properties") or {}).get("spec") or {}).get("properties")
        if fields is None or not kind.endswith("PodSchedulingPolicy"):
            continue
        dropped = tuple(f"spec.{each}" for each in spec_fields(is_cluster=kind == CLUSTER_KIND) if each not in fields)
        if dropped:
            found[kind] = dropped
    return found


def _services(clients: Mapping[str, list[JsonObject]]) -> list[str]:
    """The Services of the webhooks, each once, as namespace/name; none where the API server calls a URL."""
    found = (each["service"] for several in clients.values() for each in several if "service" in each)
    return sorted({f"{each['namespace']}/{each['name']}" for each in found})


async def _ready_endpoints(get: _Get, namespace: str, name: str) -> int | None:
    """How many endpoints are ready; None without the Service. What may not be read counts as one."""
    service = await get(f"/api/v1/namespaces/{namespace}/services/{name}")
    if service == {}:
        return None
    path = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
    slices = await get(path, {"labelSelector": f"kubernetes.io/service-name={name}"})
    if not slices:
        return 1
    endpoints = [each for one in slices.get("items") or () for each in one.get("endpoints") or ()]
    # No value means ready: https://kubernetes.io/docs/reference/kubernetes-api/service-resources/endpoint-slice-v1/
    return sum((each.get("conditions") or {}).get("ready") is not False for each in endpoints)


async def _serving_certificate(get: _Get, settings: Settings, clients: Mapping[str, list[JsonObject]]) -> bytes:
    """The certificate that the replicas serve, in PEM; empty where it cannot be read from here."""
    webhook = settings.policies.webhook
    if webhook.certificates != "own":
        return _content(webhook.cert_file)
    # The leader writes the Service's namespace, which is that of the Secret, into the configurations.
    spaces = [name.partition("/")[0] for name in _services(clients)] or [own_namespace()]
    space = webhook.service_namespace or spaces[0]
    secret = await get(f"/api/v1/namespaces/{space}/secrets/{webhook.secret}")
    return _decoded(((secret or {}).get("data") or {}).get("tls.crt"))


def _content(path: str) -> bytes:
    """The content of a file; empty where this machine does not have it, or the account may not read it."""
    with suppress(OSError):
        return Path(path).read_bytes()
    return b""


def _decoded(text: object) -> bytes:
    try:
        return base64.b64decode(text, validate=True) if isinstance(text, str) else b""
    except binascii.Error:
        return b""
