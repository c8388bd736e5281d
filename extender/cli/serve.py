"""`extender serve`: answers kube-scheduler until it is stopped, with the data of a cluster or of a snapshot."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Sequence
from contextlib import AsyncExitStack
from random import Random
from typing import TYPE_CHECKING, Final, get_args

import msgspec

from extender.cli.files import access_to, own_namespace, own_pod, read_redaction_key, read_snapshot
from extender.cli.main import CommandError, Commands
from extender.cli.progress import progress
from extender.cli.sources import settings_of
from extender.compose.leadership import RELEASE_SECONDS
from extender.compose.process import allow_connections, return_large_blocks, run_on_loop
from extender.compose.service import Service, service_of_cluster, service_of_objects
from extender.kube.credentials import Access
from extender.kube.errors import BadAccess
from extender.kube.session import open_session
from extender.kube.timing import SystemClock
from extender.model.units import Address
from extender.settings.configuration import Settings
from extender.tasks.endpoints import HANDOVER_SECONDS
from extender.tasks.supervisor import Supervisor
from extender.telemetry import catalogue
from extender.telemetry.logs import Level, configure

if TYPE_CHECKING:
    from extender.server.transport.tls import ServerTls

_LOG = logging.getLogger(__name__)
_ANSWERS_IN_FLIGHT_SECONDS: Final = 10.0
_WITHDRAWAL_SECONDS: Final = 2.0
_MOST_PROBLEMS: Final = 20


def add_parser(commands: Commands) -> None:
    """Adds the parser. All settings but the address and the log level are in the file only."""
    parser = commands.add_parser(
        "serve", help="answer kube-scheduler", examples=["--config config/extender.yaml", "--snapshot cluster.json"]
    )
    parser.add_argument("--config", metavar="FILE", help="configuration file (default: all defaults)")
    parser.add_argument(
        "--snapshot",
        metavar="FILE",
        help='instead of a cluster: the output of "kubectl get nodes,namespaces,pods -A -o json", "-" for standard input',
    )
    parser.add_argument("--bind-address", metavar="HOST:PORT", type=_address, help="instead of server.bindAddress")
    parser.add_argument("--log-level", choices=get_args(Level), help="instead of logging.level")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Returns 0 after a stop by a signal."""
    return_large_blocks()  # before anything large is allocated
    allow_connections()
    settings = _settings(arguments)
    configure(settings.logging.level, settings.logging.format)
    if arguments.snapshot:
        work = _serve_snapshot(settings, arguments.snapshot)
    else:
        work = _serve_cluster(settings, access_to(settings.kube))
    run_on_loop(work)
    return 0


async def _serve_snapshot(settings: Settings, path: str) -> None:
    rng = Random()
    with progress(f"reads {path}"):
        snapshot = read_snapshot(path, settings.limits)
    _LOG.info("snapshot read", extra={"objects": len(snapshot.objects), "skipped": snapshot.skipped})
    warn_of_unreadable(path, snapshot.unreadable)
    for note in snapshot.notes:
        _LOG.warning("snapshot is incomplete", extra={"file": path, "problem": note})
    await _run(service_of_objects(settings, snapshot.objects, rng), Supervisor(SystemClock(), rng))


def warn_of_unreadable(path: str, problems: Sequence[str]) -> None:
    """Logs the first objects of a snapshot that were skipped because they cannot be decoded."""
    for problem in problems[:_MOST_PROBLEMS]:
        _LOG.warning("object skipped", extra={"file": path, "problem": problem})
    if len(problems) > _MOST_PROBLEMS:
        fields = {"file": path, "objects": len(problems), "logged": _MOST_PROBLEMS}
        _LOG.warning("objects skipped", extra=fields)


async def _serve_cluster(settings: Settings, access: Access) -> None:
    """Serves from watches of a cluster. Waits for an API server that is down; unusable credentials are an error."""
    # The leader writes its own address into the EndpointSlice of the Service.
    if settings.leader_election.service and own_pod() is None:
        raise CommandError("leaderElection.service: needs POD_NAME, POD_UID and POD_IP in the environment, of this pod")
    clock, rng, file = SystemClock(), Random(), settings.recorder.redact_key_file
    key = read_redaction_key(file) if file else b""
    try:
        async with open_session(access, clock) as session:
            _LOG.info("reading the cluster", extra={"apiserver": session.host})
            service = service_of_cluster(settings, session, clock, rng, own_namespace(), own_pod(), key)
            supervisor = Supervisor(clock, rng)
            for name, job in service.jobs:
                supervisor.add(name, job)
            await _run(service, supervisor)
    except BadAccess as error:
        raise CommandError(str(error)) from None


async def _run(service: Service, supervisor: Supervisor) -> None:
    """Listens and runs all jobs until a signal; then reports not ready, completes the requests in flight, and stops.

    The webhook ends last: the API server may call it until every node knows that its endpoint is gone, and kube-scheduler
    must not wait for that.
    """

    async def block_readiness() -> None:
        service.readiness.block("shutdown", "the service is stopping")

    # Read when metrics are scraped: the supervisor counts, and does not know of metrics.
    service.metrics.report(catalogue.TASK_RESTARTS, lambda: supervisor.restarts)
    tls = _certificates(service, supervisor)
    supervisor.stop_on_signals()  # before the service reports ready, as a signal can follow at once
    async with AsyncExitStack() as webhook, AsyncExitStack() as server:
        try:
            if service.admission is not None:
                await webhook.enter_async_context(service.admission.listening())
            await server.enter_async_context(service.listening(tls))
        except OSError as error:
            raise CommandError(f"cannot listen on {error.strerror or error}") from None
        # In this order: no new requests, then the answers, then their writes, and last the Lease that permits writes.
        supervisor.add_drain("readiness", block_readiness, 1.0)
        if service.admission is not None:
            supervisor.add_drain("webhook endpoint", service.admission.withdraw, _WITHDRAWAL_SECONDS)
        if service.what_ifs is not None:
            supervisor.add_drain("what-if", service.what_ifs.stop, 1.0)
        # With a Service, calls that come meanwhile wait and are redirected to the next leader. So the socket stays open.
        handover, drained = service.leader_endpoint, service.verbs.traffic.drained
        supervisor.add_drain("answers in flight", drained if handover else server.aclose, _ANSWERS_IN_FLIGHT_SECONDS)
        if service.preemption is not None:
            supervisor.add_drain("preemptions", service.preemption.drain, service.preemption.limit)
        supervisor.add_drain("leader election", service.replica.release, RELEASE_SECONDS)
        if handover is not None:
            supervisor.add_drain("handover", handover.complete_handover, HANDOVER_SECONDS)
            supervisor.add_drain("connections", server.aclose, _ANSWERS_IN_FLIGHT_SECONDS)
        if service.admission is not None:
            supervisor.add_drain("webhook", service.admission.drain, service.settings.policies.webhook.drain + 1.0)
            supervisor.add_drain("reviews in flight", webhook.aclose, _ANSWERS_IN_FLIGHT_SECONDS)
        await supervisor.run()
    _LOG.info("stopped")


def _certificates(service: Service, supervisor: Supervisor) -> ServerTls | None:
    """The TLS of the socket, and a job that reloads changed files; None for plain HTTP."""
    if not service.settings.server.tls.cert_file:
        return None
    # Imported here: the library that reads certificates takes 9 MB, which plain HTTP does not need.
    from extender.server.transport.tls import ServerTls, TlsError  # noqa: PLC0415 - see above

    try:
        tls = ServerTls(service.settings.server.tls)
    except TlsError as error:
        raise CommandError(str(error)) from None
    service.metrics.report(catalogue.CERTIFICATE_EXPIRY, lambda: tls.ends)
    service.metrics.report(catalogue.CERTIFICATE_RELOADS, lambda: tls.reloads)
    service.metrics.report(catalogue.CERTIFICATE_FILES_UNUSABLE, lambda: tls.unusable)
    supervisor.add("certificates", lambda: tls.follow(SystemClock()))
    return tls


def _settings(arguments: argparse.Namespace) -> Settings:
    settings = settings_of(arguments)
    server, logging_ = settings.server, settings.logging
    if arguments.bind_address is not None:
        server = msgspec.structs.replace(server, bind_address=arguments.bind_address)
    if arguments.log_level is not None:
        logging_ = msgspec.structs.replace(logging_, level=arguments.log_level)
    return msgspec.structs.replace(settings, server=server, logging=logging_)


def _address(text: str) -> Address:
    try:
        return Address.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
