"""`extender doctor`: checks an installation from outside, and prints a remedy for each problem. Changes nothing.

Examines the running service, the scheduler's configuration and the cluster, as far as it can reach them. Exit codes:
0 no problems (there may be hints), 1 warnings, 2 errors.
"""

import argparse
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import urlsplit

import orjson

from extender.cli.command import CommandError, Commands
from extender.cli.doctor_policies import read_policy_facts
from extender.cli.files import access_to, is_file, own_namespace, read_settings, read_yaml
from extender.cli.policies.groups import read_unbound_groups
from extender.cli.service_client import ServiceError, ServiceState, Trust, add_trust, read_service
from extender.compose.process import run_on_loop
from extender.doctor.facts import Facts, Finding, Groups, PolicyFacts, SchedulingQueue
from extender.doctor.groups import examine_groups
from extender.doctor.permissions import Permission, needed_permissions
from extender.doctor.policies import examine_policies
from extender.doctor.quotas import examine_quotas
from extender.doctor.scheduler_config import examine_scheduler
from extender.doctor.schedulers import examine_schedulers
from extender.doctor.service import examine_differences, examine_service
from extender.doctor.surroundings import examine_surroundings
from extender.kube.credentials import Access
from extender.kube.diagnosis import AccessReviews, PodConditions, read_pod_conditions
from extender.kube.effects import Lease
from extender.kube.errors import KubeError, NotFound
from extender.kube.listing import read_list
from extender.kube.session import Session, open_session
from extender.kube.timing import SystemClock
from extender.kube.writer import Writer
from extender.model.objects import PodQuota
from extender.model.units import counted
from extender.server.transport.certificates import readable_by_all
from extender.settings.configuration import Settings
from extender.settings.connections import Kube
from extender.settings.jobs import LeaderElection
from extender.wire.errors import WireError
from extender.wire.objects.kinds import RESOURCE_QUOTAS

_DEFAULT_SCHEDULER: Final = "default-scheduler"
_LOCAL: Final = frozenset({"127.0.0.1", "::1", "localhost"})
_RANK: Final = {"info": 0, "warning": 1, "error": 2}
_EVERYWHERE: Final = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 (distinguished from other addresses, not bound to)


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """Facts from the API server: denied permissions, by how many seconds its clock is ahead, the Lease, and pods.

    The Lease is None if leader election is off; a Lease that does not exist has no holder. Pods are read only if the
    service has never been called, else they are None. Policies, quotas and groups are None where they are disabled.
    """

    denied: Sequence[Permission]
    ahead: float | None
    lease: Lease | None = None
    pods: Sequence[PodConditions] | None = None
    policies: PolicyFacts | None = None
    quotas: Sequence[PodQuota] | None = None
    groups: Groups | None = None


def add_parser(commands: Commands) -> None:
    """Adds the parser. The defaults are for the machine of the service."""
    parser = commands.add_parser("doctor", help="check an installation, and print a remedy for each problem")
    parser.add_argument("--url", help="URL of the running service (server.bindAddress of --config, on this machine)")
    parser.add_argument("--config", metavar="FILE", help="configuration file to compare with the running service")
    parser.add_argument("--scheduler-config", metavar="FILE", help="kube-scheduler's --config file")
    parser.add_argument(
        "--kubeconfig",
        metavar="FILE",
        default="",
        help="access to the cluster (kube.kubeconfig of the service, else as kubectl)",
    )
    parser.add_argument(
        "--as",
        dest="account",
        default="",
        help="the service's account, such as system:serviceaccount:kube-system:placement-extender",
    )
    parser.add_argument("--no-cluster", action="store_true", help="do not connect to the API server")
    add_trust(parser)
    parser.add_argument("-o", "--output", choices=["text", "json"], default="text", help="json: for scripts")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Returns 0, 1 or 2, by the worst finding."""
    findings, checked = examine(arguments)
    findings.sort(key=lambda finding: -_RANK[finding.severity])
    (_print_json if arguments.output == "json" else _print_text)(findings, checked)
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
        state = read_service(url, Trust(arguments.ca_file, arguments.cert_file, arguments.key_file))
        # From here on the settings are those of the running service; the file may have changed since its start.
        facts = _with_service(facts, state)
        findings += examine_differences(configured, state.settings) if configured is not None else ()
        checked.append(f"service {url}")
    except ServiceError as error:
        findings.append(Finding("error", error.check, str(error), error.remedy))
    findings += _exposed_keys({configured.server.tls.key_file if configured else "", arguments.key_file})
    if not arguments.no_cluster:
        facts, problems = _with_cluster(facts, _ClusterAccess.of(arguments, url, facts.settings), _profiles(scheduler))
        findings += problems
        checked += [] if problems else ["cluster"]
    if scheduler is not None:
        nodes = int(facts.total("extender_index_entries", kind="nodes"))
        findings += examine_scheduler(scheduler, facts.settings, nodes)
        checked.append(f"scheduler configuration {arguments.scheduler_config}")
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
    """The scheduler names of the profiles that call this extender."""
    profiles = (scheduler or {}).get("profiles") or [{}]
    return frozenset(str(profile.get("schedulerName", _DEFAULT_SCHEDULER)) for profile in profiles)


@dataclass(frozen=True, slots=True)
class _ClusterAccess:
    """The access to the API server and the account to review; `uncertain` describes an account that is a guess."""

    access: Access
    account: str = ""
    uncertain: str = ""

    @classmethod
    def of(cls, arguments: argparse.Namespace, url: str, settings: Settings) -> "_ClusterAccess":
        """The service's own access if it is known, so that its permissions are reviewed, not those of the user.

        It is known if this machine has the kubeconfig of the running settings, or if a service without one runs on this
        machine and so uses the default.
        """
        own, given, account = settings.kube.kubeconfig, arguments.kubeconfig, arguments.account
        if account or given:
            is_own = bool(account) or given == own
            return cls(access_to(Kube(kubeconfig=given)), account, "" if is_own else f"the account of {given}")
        if own and is_file(own):
            return cls(access_to(settings.kube))
        is_here = urlsplit(url).hostname in _LOCAL
        return cls(access_to(Kube()), "", "" if is_here and not own else "the account of this command")


def _address(settings: Settings) -> str:
    """The URL of a service with these settings, from its own machine."""
    bound = settings.server.bind_address
    # A service that listens on all addresses is reachable on loopback.
    host = "127.0.0.1" if bound.host in _EVERYWHERE else bound.host
    scheme = "https" if settings.server.tls.cert_file else "http"
    return f"{scheme}://[{host}]:{bound.port}" if ":" in host else f"{scheme}://{host}:{bound.port}"


def _with_service(facts: Facts, state: ServiceState) -> Facts:
    clocks = {"the service": state.date - facts.now} if state.date is not None else {}
    return replace(facts, settings=state.settings, readiness=state.readiness, samples=state.samples, clocks=clocks)


def _with_cluster(facts: Facts, cluster: _ClusterAccess, profiles: frozenset[str]) -> tuple[Facts, list[Finding]]:
    """Adds the facts of the API server, or returns a finding if it cannot be read."""
    # A list of all pods is expensive, and is used only to explain why filter was never called.
    is_called = facts.samples is None or facts.total("extender_requests_total", verb="filter") > 0
    try:
        found = run_on_loop(_read_cluster(cluster, facts.settings, reads_pods=not is_called))
    except KubeError as error:
        remedy = "give a kubeconfig with --kubeconfig, or skip the cluster with --no-cluster"
        return facts, [Finding("error", "cluster", f"the API server cannot be read: {error}", remedy)]
    clocks = dict(facts.clocks) | ({"the API server": found.ahead} if found.ahead is not None else {})
    facts = replace(facts, denied=found.denied, clocks=clocks, account=cluster.uncertain)
    if found.pods is not None:
        facts = replace(facts, queue=_queue(found.pods, facts.total("process_start_time_seconds"), profiles))
    if found.lease is not None:
        renewed = found.lease.renew_time
        age = 0.0 if renewed is None else facts.now - renewed.timestamp()
        facts = replace(facts, lease_holder=found.lease.holder, lease_age=age)
    return replace(facts, policies=found.policies, quotas=found.quotas, groups=found.groups), []


def _queue(pods: Sequence[PodConditions], started: float, profiles: frozenset[str]) -> SchedulingQueue:
    """How many pods of these schedulers were bound since the service started, and the messages of rejected ones."""
    ours = [pod for pod in pods if (pod.spec.scheduler_name or _DEFAULT_SCHEDULER) in profiles]
    rejected = tuple(sorted({pod.rejection for pod in ours if pod.rejection}))
    return SchedulingQueue(sum(pod.scheduled_at > started for pod in ours), rejected)


async def _read_cluster(cluster: _ClusterAccess, settings: Settings, *, reads_pods: bool) -> ClusterFacts:
    async with open_session(cluster.access, SystemClock()) as session:
        reviews = AccessReviews(session.reads, cluster.account)
        there = await reviews.server_time()
        ahead = None if there is None else there.timestamp() - time.time()
        denied = [one for one in needed_permissions(settings) if not await reviews.is_allowed(*one.review_arguments)]
        pods = await read_pod_conditions(session.reads) if reads_pods else None
        policies = await read_policy_facts(session.reads, settings) if settings.policies.enabled else None
        quotas = await _quotas(session, settings)
        groups = await read_unbound_groups(session.reads, settings) if settings.policies.enabled else None
        lease = await _lease(session, settings.leader_election)
        return ClusterFacts(denied, ahead, lease, pods, policies, quotas, groups)


async def _quotas(session: Session, settings: Settings) -> Sequence[PodQuota] | None:
    """The quotas that can be read; None where they are disabled, or may not be read."""
    if not settings.quota.enabled:
        return None
    try:
        items = await read_list(session.reads, RESOURCE_QUOTAS.path)
    except KubeError as error:
        if error.status in (HTTPStatus.FORBIDDEN, HTTPStatus.UNAUTHORIZED):
            return None  # the missing permission is a finding
        raise
    return [found for item in items if (found := _quota(item)) is not None]


def _quota(item: bytes) -> PodQuota | None:
    """A quota; None where a field cannot be read, which a metric of the service counts."""
    try:
        return RESOURCE_QUOTAS.decode_object(item)
    except WireError:
        return None


async def _lease(session: Session, settings: LeaderElection) -> Lease | None:
    """The Lease of the replicas; None without leader election."""
    if not settings.enabled:
        return None
    namespace = settings.lease_namespace or own_namespace()
    try:
        return await Writer(session.reads, "doctor", "doctor").get_lease(namespace, settings.lease_name)
    except NotFound:
        return Lease(namespace, settings.lease_name)


def _exposed_keys(paths: Iterable[str]) -> Iterator[Finding]:
    """A finding for each private key on this machine that every account may read."""
    for path in sorted(paths):
        if path and readable_by_all(path):
            yield Finding("warning", "key", f"every account of this machine can read {path}", f"chmod 600 {path}")


def _print_json(findings: Sequence[Finding], checked: Sequence[str]) -> None:
    """Prints one JSON document, for scripts."""
    rows = [
        {"severity": one.severity, "check": one.check, "problem": one.problem, "remedy": one.remedy} for one in findings
    ]
    print(orjson.dumps({"checked": checked, "findings": rows}, option=orjson.OPT_INDENT_2).decode())


def _print_text(findings: Sequence[Finding], checked: Sequence[str]) -> None:
    """Prints two lines for each finding: the problem and the remedy."""
    for one in findings:
        print(f"{one.severity}: {one.check}: {one.problem}\n    {one.remedy}")
    counts = [counted(sum(one.severity == name for one in findings), name) for name in ("error", "warning")]
    print(f"{', '.join(counts)}; checked: {', '.join(checked) or 'nothing'}")
