"""`extender doctor`: checks an installation from outside, and prints a remedy for each problem. Changes nothing.

Examines the running service, the scheduler's configuration and the cluster, as far as it can reach them. Exit codes:
0 no problems (there may be hints), 3 warnings, 4 errors. As with all commands, 1 means that a file cannot be read, and 2 wrong usage.
"""

import argparse
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from extender.certificates.rotation import last_day
from extender.cli.deployment_facts import read_deployment, unserved
from extender.cli.files import access_to, is_file, own_namespace, read_settings, read_yaml
from extender.cli.groups import read_unbound_groups
from extender.cli.main import Commands, say
from extender.cli.parser import add_cluster
from extender.cli.policy_facts import DENIED, content_of, read_policy_facts
from extender.cli.progress import progress
from extender.cli.service_client import (
    ServiceError,
    add_trust,
    read_service,
    trust_of,
    try_as_scheduler,
)
from extender.cli.sources import add_output, cluster_of, print_document, table
from extender.compose.process import run_on_loop
from extender.doctor.deployment import examine_deployment
from extender.doctor.facts import LOCAL, RENEW, Facts, Finding, Permission, SchedulerCalls, needed_permissions
from extender.doctor.policies import examine_groups, examine_policies
from extender.doctor.scheduler_config import entry_of, examine_scheduler, read_scheduler
from extender.doctor.service import examine_differences, examine_service
from extender.doctor.surroundings import (
    EXPIRES_SOON,
    asking_schedulers,
    examine_schedulers,
    examine_surroundings,
    unasked_names,
)
from extender.doctor.versions import examine_versions
from extender.features.execution.report import examine_moves
from extender.features.quotas.report import examine_quotas
from extender.kube.credentials import Access
from extender.kube.diagnosis import AccessReviews, read_api_server, read_dropped_fields, read_pod_conditions
from extender.kube.effects import Lease
from extender.kube.errors import KubeError, NotFound
from extender.kube.listing import read_list
from extender.kube.reflector_status import RestartReason
from extender.kube.session import Session, open_session
from extender.kube.timing import SystemClock
from extender.kube.writer import Writer
from extender.model.objects import PodQuota
from extender.model.units import ago, counted
from extender.server.transport.tls import readable_by_all
from extender.settings.configuration import Settings
from extender.settings.connections import Kube
from extender.settings.jobs import LeaderElectionSettings
from extender.wire.api_server import ApiServer
from extender.wire.errors import WireError
from extender.wire.objects.kinds import RESOURCE_QUOTAS
from extender.wire.scheduler_config import Extender, KubeSchedulerConfiguration, Profile

_NAMESPACE: Final = 2  # of the parts of "system:serviceaccount:NAMESPACE:NAME"
_CODES: Final = {"info": 0, "warning": 3, "error": 4}  # by severity; 1 and 2 say that nothing was examined
_EVERYWHERE: Final = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 (distinguished from other addresses, not bound to)


def add_parser(commands: Commands) -> None:
    """Adds the parser. The defaults are for the machine of the service."""
    parser = commands.add_parser(
        "doctor",
        help="check an installation, and print a remedy for each problem",
        examples=["--config config/extender.yaml", "--url http://127.0.0.1:8888 --no-cluster -o json"],
    )
    parser.add_argument("--scheduler-config", metavar="FILE", help="kube-scheduler's --config file")
    add_sources(parser)
    add_output(parser)
    parser.set_defaults(run=run)


def add_sources(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments for the service and the cluster, which `support-bundle` has too."""
    parser.add_argument("--url", help="URL of the running service (server.bindAddress of --config, on this machine)")
    parser.add_argument("--config", metavar="FILE", help="configuration file to compare with the running service")
    add_cluster(parser, parser, "access to the cluster (kube.kubeconfig of the service, else as kubectl)")
    parser.add_argument(
        "--as",
        dest="account",
        default="",
        help="the service's account, such as system:serviceaccount:kube-system:placement-extender",
    )
    parser.add_argument("--no-cluster", action="store_true", help="do not connect to the API server")
    add_trust(parser)


def run(arguments: argparse.Namespace) -> int:
    """Returns 0, 3 or 4, by the worst finding."""
    with progress("examines the installation"):
        findings, checked = examine(arguments)
    # Stable: findings of one severity stay in the order of the checks.
    findings.sort(key=lambda finding: -_CODES[finding.severity])
    _print(findings, checked, arguments.output)
    return max((_CODES[finding.severity] for finding in findings), default=0)


def examine(arguments: argparse.Namespace) -> tuple[list[Finding], list[str]]:
    """The findings, and the parts that could be checked."""
    # Each source may be missing. The order matters, because a later part uses the facts of an earlier one:
    # 1. the files: the settings as configured, and the scheduler's configuration;
    # 2. the service: its settings replace the file's;
    # 3. the cluster: with the account and the permissions that these settings need;
    # 4. the scheduler's configuration, compared with the service if its settings are known;
    # 5. findings from all facts together.
    configured = read_settings(arguments.config) if arguments.config else None
    file = arguments.scheduler_config
    scheduler, findings = read_scheduler(read_yaml(file)) if file else (None, [])
    checked: list[str] = []
    facts = Facts(configured or Settings(), time.time(), knows_settings=configured is not None)
    url = address_of(arguments, facts.settings)
    facts = replace(facts, url=url, leads=getattr(arguments, "leads", False))
    try:
        state = read_service(url, trust_of(arguments))
        # From here on the settings of the running service count, because the file may have changed since its start.
        clocks = {"the service": state.date - facts.now} if state.date is not None else {}
        facts = replace(facts, settings=state.settings, readiness=state.readiness, samples=state.samples, clocks=clocks)
        facts = replace(facts, knows_settings=True)
        findings += examine_differences(configured, state.settings) if configured is not None else ()
        checked.append(f"service {url}")
    except ServiceError as error:
        findings.append(Finding("error", error.check, str(error), error.remedy))
    findings += _exposed_keys({configured.server.tls.key_file if configured else "", arguments.key_file})
    if not arguments.no_cluster:
        try:
            cluster = _ClusterAccess.of(arguments, url, facts.settings)
            facts = run_on_loop(_with_cluster(facts, cluster, scheduler))
            checked.append("cluster")
        except KubeError as error:
            remedy = "give a kubeconfig with --kubeconfig, or skip the cluster with --no-cluster"
            findings.append(Finding("error", "cluster", f"the API server cannot be read: {error}", remedy))
    if scheduler is not None:
        problems, how = _examine_scheduler(scheduler, url, facts)
        findings += problems
        checked.append(f"scheduler configuration {file}{how}")
        if facts.knows_settings:
            ours = entry_of(scheduler.extenders, facts.settings, url)
            is_here = _is_here(arguments, url, facts.settings)
            facts = replace(facts, unserved=unserved(scheduler.extenders, ours, is_here=is_here))
    elif file:
        checked.append(f"scheduler configuration {file}, which kube-scheduler cannot read")
    findings += [
        *examine_service(facts),
        *examine_schedulers(facts, None if scheduler is None else _profiles(scheduler)),
        *examine_surroundings(facts),
        *examine_versions(facts),
        *examine_deployment(facts, scheduler),
        *examine_policies(facts),
        *examine_moves(facts),
        *examine_quotas(facts),
        *examine_groups(facts),
    ]
    return findings, checked


def _examine_scheduler(scheduler: KubeSchedulerConfiguration, url: str, facts: Facts) -> tuple[list[Finding], str]:
    """The findings in the scheduler's configuration, and what was not compared."""
    nodes = int(facts.total("extender_index_entries", kind="nodes"))
    findings = examine_scheduler(scheduler, facts.settings if facts.knows_settings else None, nodes, url)
    how = "" if facts.knows_settings else " alone, without the settings of the extender"
    tried = _examine_tls(entry_of(scheduler.extenders, facts.settings, url) or Extender(), url, facts)
    how += " without its certificates, which are not on this machine" if tried is None else ""
    return [*findings, *(tried or ())], how


def _profiles(scheduler: KubeSchedulerConfiguration | None) -> frozenset[str]:
    profiles = (Profile(),) if scheduler is None else scheduler.all_profiles
    return frozenset(profile.name for profile in profiles)


def _is_here(arguments: argparse.Namespace, url: str, settings: Settings) -> bool:
    """Whether the service runs on this machine, as far as its address tells."""
    # The leader writes the Service only if it runs in a pod. Then a loopback address is the end of a port-forward.
    return urlsplit(url).hostname in LOCAL and not settings.leader_election.service and not arguments.forward


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
        """The service's own access if it is known, so that its permissions are reviewed and not the user's.

        It is known if this machine has the kubeconfig of the running settings, or if a service without one runs on this
        machine and so uses the default.
        """
        own, given, account = settings.kube.kubeconfig, arguments.kubeconfig, arguments.account
        is_here = _is_here(arguments, url, settings)
        if account or given or arguments.context:
            # With --as, permissions are reviewed for the account (SubjectAccessReview). Otherwise the reviews are about
            # the user of the kubeconfig, and only the kubeconfig of the service has its user.
            is_own = bool(account) or given == own
            return cls(
                access_to(cluster_of(arguments)),
                account,
                "" if is_own else f"the account of {given or arguments.context}",
                is_here,
            )
        if own and is_file(own):
            return cls(access_to(settings.kube), is_here=is_here)
        # A service without a kubeconfig on this machine takes the same default as this command, so nothing is
        # uncertain.
        return cls(access_to(Kube()), "", "" if is_here and not own else "the account of this command", is_here)


def address_of(arguments: argparse.Namespace, settings: Settings) -> str:
    """The URL of the service: the given one, else the address of a service with these settings, from its own machine."""
    if arguments.url:
        return str(arguments.url)
    bound = settings.server.bind_address
    # A service that listens on all addresses is reachable on loopback.
    host = "127.0.0.1" if bound.host in _EVERYWHERE else bound.host
    scheme = "https" if settings.server.tls.cert_file else "http"
    return f"{scheme}://[{host}]:{bound.port}" if ":" in host else f"{scheme}://{host}:{bound.port}"


async def _with_cluster(facts: Facts, cluster: _ClusterAccess, scheduler: KubeSchedulerConfiguration | None) -> Facts:
    settings = facts.settings
    # A list of bound pods is expensive, and is used only to explain why filter was never called.
    is_called = facts.samples is None or facts.total("extender_requests_total", verb="filter") > 0
    async with open_session(cluster.access, SystemClock()) as session:
        reviews = AccessReviews(session.reads, cluster.account)
        there = await reviews.server_time()
        clocks = {} if there is None else {"the API server": there.timestamp() - time.time()}
        facts = replace(facts, clocks={**facts.clocks, **clocks})
        if facts.knows_settings:
            denied = await _denied(reviews, settings)
            account = cluster.uncertain if denied is not None else cluster.account
            facts = replace(facts, denied=denied, account=account)
        lease = await _lease(session, settings.leader_election, cluster.namespace)
        # A replica that did not lead was not to be called. What is not known is the begin of time.
        led = lease.acquire_time.timestamp() if lease is not None and lease.acquire_time is not None else 0.0
        try:
            facts = replace(facts, queue=await _queue(session, facts, scheduler, led, is_called=is_called))
        except KubeError as error:
            if error.status not in DENIED:
                raise
            facts = replace(facts, unread_pods=str(error))
        if settings.policies.enabled:
            policies = await read_policy_facts(session.reads, settings, is_here=cluster.is_here)
            facts = replace(facts, policies=policies, groups=await read_unbound_groups(session.reads, settings))
        if settings.quota.enabled:
            facts = replace(facts, quotas=await _quotas(session))
        facts = replace(facts, deployment=await read_deployment(session.reads, cluster.namespace))
        facts = replace(facts, api_server=await _api_server(session, facts))
        facts = replace(facts, dropped_fields=await read_dropped_fields(session.reads))
        if lease is not None:
            # renewTime is the clock of the holder. A skew between the clocks is a finding of its own.
            age = 0.0 if lease.renew_time is None else facts.now - lease.renew_time.timestamp()
            facts = replace(facts, lease_holder=lease.holder, lease_age=age)
        return facts


async def _api_server(session: Session, facts: Facts) -> ApiServer:
    """The API server. Only the service knows whether it serves streaming lists."""
    server = await read_api_server(session.reads)
    refused = facts.total("extender_watch_restarts_total", reason=RestartReason.NO_WATCH_LIST)
    return replace(server, has_streaming_lists=not refused)


async def _denied(reviews: AccessReviews, settings: Settings) -> Sequence[Permission] | None:
    """The needed permissions that the account lacks; None where this command may not review another account."""
    try:
        return [
            permission
            for permission in needed_permissions(settings)
            if not await reviews.is_allowed(*permission.review_arguments)
        ]
    except KubeError as error:
        if error.status in DENIED:
            return None
        raise


async def _queue(
    session: Session, facts: Facts, scheduler: KubeSchedulerConfiguration | None, led: float, *, is_called: bool
) -> SchedulerCalls:
    """The queue of this scheduler's profiles, by their pods. ``led``: when the present leader began. Raises KubeError."""
    pods = await read_pod_conditions(session.reads, "spec.nodeName=")
    pods += [] if is_called else await read_pod_conditions(session.reads, "spec.nodeName!=")
    started, profiles = max(facts.total("process_start_time_seconds"), led), _profiles(scheduler)
    ours = [pod for pod in pods if pod.scheduler in profiles]
    asked = asking_schedulers(facts)
    # A request of another scheduler proves nothing about this one.
    called_at = facts.latest("extender_last_request_timestamp_seconds") if asked <= profiles else 0.0
    # A pod without the condition PodScheduled: its scheduler has not tried it since it was created.
    untried = [pod.untried_since for pod in ours if pod.untried_since]
    entries = () if scheduler is None or not facts.knows_settings else scheduler.extenders
    entry = entry_of(entries, facts.settings, facts.url)
    # An event names the URL of the extender that failed. Failures of other extenders are not ours to report.
    others = [other.url_prefix for other in entries if other is not entry and other.url_prefix]
    kubeconfig = "" if scheduler is None else scheduler.client_connection.kubeconfig
    return SchedulerCalls(
        scheduled=sum(pod.scheduled_at > started for pod in ours),
        rejected=tuple(sorted({pod.rejection for pod in ours if pod.rejection})),
        # Without the scheduler's configuration: the events of all schedulers, which name the address that they call.
        failed=tuple(
            pod.failure
            for pod in (pods if scheduler is None else ours)
            if pod.failure and not any(prefix in pod.failure for prefix in others)
        ),
        untried=len(untried),
        untried_since=min(untried, default=0.0),
        tried_at=max([called_at, *(pod.tried_at for pod in ours)]),
        lost_kubeconfig="" if is_file(kubeconfig) else kubeconfig,
        unasked=unasked_names(facts, profiles, ((pod.scheduler, pod.untried_since) for pod in pods)),
    )


def _examine_tls(entry: Extender, url: str, facts: Facts) -> list[Finding] | None:
    """Findings about the files with which kube-scheduler calls the service; None where this machine does not have them."""
    tls = entry.tls_config
    given = {
        "ca": (tls.ca_data, tls.ca_file),
        "cert": (tls.cert_data, tls.cert_file),
        "key": (tls.key_data, tls.key_file),
    }
    pem = {part: data or content_of(path) for part, (data, path) in given.items()}
    # Inline data counts like a file: `caData` and so on need no machine.
    if any(path and not pem[part] for part, (_, path) in given.items()):
        return None
    findings: list[Finding] = []
    ends = {part: last_day(pem[part]) for part in ("ca", "cert")}
    for part, end in ends.items():
        if end is not None and 0 < end - facts.now < EXPIRES_SOON:
            problem = f"the certificate in {part}File of the scheduler's tlsConfig expires in {ago(end - facts.now)}"
            remedy = f"{RENEW}, and restart kube-scheduler"
            findings.append(Finding("warning", "certificate", problem, remedy))
    # A handshake is tried only with a service that has answered. Otherwise the error would be about the network.
    if pem["ca"] and facts.samples is not None and url.startswith("https:"):
        with suppress(OSError, ValueError):
            host = urlsplit(entry.url_prefix).hostname
            fault = try_as_scheduler(url, tls.server_name or str(host), pem, ends["cert"])
            findings += [] if fault is None else [Finding("error", "scheduler", *fault)]
    return findings


async def _quotas(session: Session) -> Sequence[PodQuota] | None:
    """The quotas that can be read; None where they may not be read: the missing permission is a finding."""
    try:
        items = await read_list(session.reads, RESOURCE_QUOTAS.path)
    except KubeError as error:
        if error.status in DENIED:
            return None
        raise
    quotas: list[PodQuota] = []
    for item in items:
        with suppress(WireError):  # a field that cannot be read, which a metric of the service counts
            quotas.append(RESOURCE_QUOTAS.decode_object(item))
    return quotas


async def _lease(session: Session, settings: LeaderElectionSettings, namespace: str) -> Lease | None:
    """The Lease of the replicas. A Lease that does not exist has no holder. None if it is not known, or may not be read."""
    namespace = settings.lease_namespace or namespace
    if not settings.enabled or not namespace:
        return None
    try:
        return await Writer(session.reads, "doctor", "doctor").get_lease(namespace, settings.lease_name)
    except NotFound:
        return Lease(namespace, settings.lease_name)
    except KubeError as error:
        if error.status in DENIED:
            return None
        raise


def _exposed_keys(paths: Iterable[str]) -> Iterator[Finding]:
    """A finding for each private key on this machine that every account may read."""
    for path in sorted(paths):
        if path and readable_by_all(path):
            yield Finding("warning", "key", f"every account of this machine can read {path}", f"chmod 600 {path}")


def _print(findings: Sequence[Finding], checked: Sequence[str], form: str) -> None:
    rows = [
        {"severity": finding.severity, "check": finding.check, "problem": finding.problem, "remedy": finding.remedy}
        for finding in findings
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
        for finding in findings:
            say(f"{finding.severity}: {finding.check}: {finding.problem}", f"    {finding.remedy}")
    counts = [counted(sum(finding.severity == name for finding in findings), name) for name in ("error", "warning")]
    say(f"{', '.join(counts)}; checked: {', '.join(checked) or 'nothing'}")
