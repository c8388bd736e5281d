"""The handlers of the verbs: decode, bring the index up to date, decide, encode. The decisions are in `extender/verbs`.

`middleware` turns errors into answers. https://pkg.go.dev/k8s.io/kube-scheduler/extender/v1
"""

import asyncio
from collections.abc import Callable
from time import time
from typing import Final

from aiohttp import web

from extender.model.objects import Pod
from extender.server.failures import Stale, abandoned
from extender.server.middleware import LARGE_BYTES, VerbCall
from extender.server.transport.connections import connection_of
from extender.wire.extender_v1 import (
    ExtenderArgs,
    FilterResult,
    decode_args,
    decode_binding_args,
    decode_preemption_args,
    encode_binding,
    encode_filter,
    encode_filter_nodes,
    encode_preemption,
    encode_priorities,
)

_LOOP_ITERATIONS: Final = 3  # of the event loop: one polls, the next reads, and TLS decrypts


async def filter_nodes(call: VerbCall) -> bytes:
    """Which of the nodes may take the pod, in the form in which they came: names, or whole nodes."""
    app = call.app
    metrics = app.metrics.verbs["filter"]
    args = decode_args(call.body, app.settings.limits)
    metrics.record_request(_count(args), by_names=args.nodes is None)
    try:
        await _prepare_decision(call, lambda: _filtered(FilterResult(_requested(args)), args))
    except Stale:
        app.verbs.attempt_failed(args.pod)  # the new request alone shows that the last attempt failed
        raise
    result = await app.verbs.filter(args)
    if result.error:
        metrics.record_failure("undecidable")
    else:
        metrics.record_decision()
    app.metrics.record_passed(len(result.passed))
    labels = [reason.label for reason in result.reasons]
    app.metrics.record_rejections(labels)
    app.decisions.add(time(), "filter", _identity(args.pod), _count(args), result.passed, labels, result.error)
    return _filtered(result, args)


async def prioritize_nodes(call: VerbCall) -> bytes:
    """A score for each node, or the empty list where all are equal."""
    app = call.app
    args = decode_args(call.body, app.settings.limits)
    app.metrics.verbs["prioritize"].record_request(_count(args), by_names=args.nodes is None)
    await _prepare_decision(call, lambda: encode_priorities({}))
    scores = app.verbs.prioritize(args)
    app.metrics.verbs["prioritize"].record_decision()
    return encode_priorities(scores)


async def preempt_pods(call: VerbCall) -> bytes:
    """The candidate nodes on which the pod would fit once the victims are gone."""
    app = call.app
    args = decode_preemption_args(call.body, app.settings.limits)
    app.metrics.verbs["preempt"].record_request(len(args.candidates))
    # A candidate without victims would fail the whole call.
    await _prepare_decision(
        call, lambda: encode_preemption([candidate for candidate in args.candidates if candidate.victims])
    )
    candidates = await app.verbs.preempt(args)
    app.metrics.verbs["preempt"].record_decision()
    nodes = [candidate.node for candidate in candidates]
    app.decisions.add(time(), "preempt", _identity(args.pod), len(args.candidates), nodes)
    return encode_preemption(candidates)


async def bind_pod(call: VerbCall) -> bytes:
    """Binds a pod for the scheduler. Raises Failure, before anything is written, if the scheduler does not wait any more."""
    app = call.app
    args = decode_binding_args(call.body)
    await _check_client_waits(call.request)
    error = await app.verbs.bind(args)
    passed = () if error else (args.node,)
    app.decisions.add(time(), "bind", (args.namespace, args.name, args.uid), 1, passed, error=error)
    return encode_binding(error)


async def _prepare_decision(call: VerbCall, passing: Callable[[], bytes]) -> None:
    """Sets the answer that passes every node, and waits until the events that arrived before the request are in the index.

    Raises Failure.
    """
    # The order: 1. the fallback, as each later step may fail. 2. The index. 3. The client, after the wait for the index. 4. A turn for
    # a large request, ahead of new ones: its decoded names are in memory already.
    app, call.pass_all = call.app, passing
    if app.verbs.catch_up is not None:
        await app.verbs.catch_up()
    await _check_client_waits(call.request)
    if app.readiness.is_stale:
        missing = (name for name, problem in app.readiness.checks().items() if problem)
        raise Stale(f"changes of {', '.join(missing)} cannot be followed now; /readyz says why")
    if len(call.body) >= LARGE_BYTES:
        await app.turns.take(ahead=True)


async def _check_client_waits(request: web.Request) -> None:
    """Raises Failure if the client does not wait for the answer any more. One system call (1 µs) if it does.

    1. A request may have been unread for longer than the scheduler waits (extenders[].httpTimeout).
    2. Then the pod is back in the queue, and may have been sent again on another connection. To answer the old request would assume
       a pod that is never bound.
    3. The event loop has not read the end of the connection yet: it comes after the request in the socket. So the socket is checked.
    """
    transport, connection = request.transport, connection_of(request)
    iterations = _LOOP_ITERATIONS if connection is not None and connection.is_readable() else 0
    while transport is not None and not transport.is_closing():
        if not iterations:
            return
        iterations -= 1
        await asyncio.sleep(0)
    raise abandoned()


def _filtered(result: FilterResult, args: ExtenderArgs) -> bytes:
    return encode_filter(result) if args.nodes is None else encode_filter_nodes(result, args)


def _identity(pod: Pod) -> tuple[str, str, str]:
    return pod.signature.namespace, pod.name, pod.uid


def _requested(args: ExtenderArgs) -> list[str]:
    return [node.name for node in args.nodes] if args.nodes is not None else list(args.node_names or ())


def _count(args: ExtenderArgs) -> int:
    return len(args.node_names or args.nodes or ())
