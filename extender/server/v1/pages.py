"""Pages of the cluster: the overview, domains with their contents, workloads, counts of constraints, and pods without a node.

Each handler reads the request. `tasks/browse_service.py` computes the page, and equal requests share it. The overview is answered at
any time, also by a replica that is not ready.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import Any, Final

from aiohttp import web
from msgspec import structs

from extender.model.answers.pages import (
    MOST_ROWS,
    ClusterFigures,
    ConstraintsPage,
    Features,
    GroupPage,
    HealthCheck,
    Overview,
    PageOf,
    PendingPage,
    PendingQuestion,
    PendingRow,
    PolicyPage,
    PreemptionPage,
    TopologyPage,
    TopologyQuestion,
    WorkloadPage,
)
from extender.model.constraints.labels import KEY_PATTERN, is_label_key
from extender.model.units import rfc3339, times
from extender.server.collaborators import COLLABORATORS, Collaborators
from extender.server.openapi import Operation, Parameter
from extender.server.v1.answers import (
    POD_PARAMETERS,
    Number,
    browser_of,
    check_parameters,
    index_is_current,
    shared_answer,
)
from extender.tasks.browse_service import BrowseService
from extender.telemetry.decision_log import LoggedDecision
from extender.verbs.browse.manifests import KINDS
from extender.wire.errors import WireError
from extender.wire.objects.constraints import LONGEST_SELECTOR, SELECTOR_PATTERN, parse_selector_text

_MEMORY: Final = Path("/proc/self/statm")  # sizes in pages; the second one is resident
_FEW_DIFFERENCES: Final = 10
_LIMIT: Final = Number("limit", "How many rows.", 1, MOST_ROWS, 100)
_AFTER: Final = Parameter("after", "query", "Continue after this position, the `next` of the page before.")
_NAMESPACE: Final = Parameter("namespace", "query", "Only pods of this namespace.")
_BY_WORKLOAD: Final = "workload"
_NAMES: Final = ("namespace", "after", "limit")


async def overview(request: web.Request) -> web.Response:
    """`GET /v1/overview`."""
    check_parameters(request)
    app = request.app[COLLABORATORS]

    browser = browser_of(app)

    async def compute() -> Overview:
        return _overview(await browser.figures(), browser.freshness(), app)

    return await shared_answer(request, compute)


def _overview(figures: ClusterFigures, freshness: float | None, app: Collaborators) -> Overview:
    settings, readiness = app.settings, app.readiness
    return Overview(
        **structs.asdict(figures),
        version=app.version,
        mode=settings.mode,
        placement=settings.placement,
        uptime_seconds=round(monotonic() - app.started, 3),
        leader=readiness.may_answer,
        ready=readiness.is_ready,
        health=(*_checks(app), *_warnings(figures)),
        freshness_seconds=freshness,
        resident_bytes=_resident_bytes(),
        cluster_name=settings.server.cluster_name,
        verbs=tuple(metrics.recent.rate(verb) for verb, metrics in app.metrics.verbs.items()),
        features=Features(
            whatif=app.verbs.what_ifs is not None,
            policies=settings.policies.enabled,
            preemption=settings.preemption.mode,
            quotas=settings.quota.enabled,
        ),
        shadow=None if app.verbs.shadow is None else app.verbs.shadow(_FEW_DIFFERENCES),
    )


def _checks(app: Collaborators) -> Iterator[HealthCheck]:
    # A stale index still answers, by the fallback of the settings: its checks are warnings.
    is_stale = app.readiness.is_stale
    for name, problem in app.readiness.checks().items():
        if not problem:
            yield HealthCheck(check=name, status="ok", text="ok")
        else:
            yield HealthCheck(check=name, status="warning" if is_stale else "failing", text=problem)


def _warnings(figures: ClusterFigures) -> Iterator[HealthCheck]:
    """Problems with which the extender still answers."""
    if figures.rebuilds:
        text = f"the counts were wrong and were built again {times(figures.rebuilds)}; the log has what was wrong"
        yield HealthCheck(check="index", status="warning", text=text)
    if figures.invalid_policies:
        text = f"{figures.invalid_policies} scheduling policies are invalid and are not applied"
        yield HealthCheck(check="policies", status="warning", text=text)


def _resident_bytes() -> int:
    """The memory of this process, 0 where the system does not tell. 10 µs."""
    try:
        return int(_MEMORY.read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


async def topology(request: web.Request) -> web.Response:
    """`GET /v1/topology?key=KEY&namespace=NS&selector=SELECTOR&domain=DOMAIN&after=NAME&limit=N`."""
    check_parameters(request, ("key", "selector", "domain", *_NAMES))
    key = request.query.get("key", "")
    if not is_label_key(key):
        raise WireError("key", 'expected a label key of nodes such as "topology.kubernetes.io/zone"')
    text = request.query.get("selector")
    selector = None if text is None else parse_selector_text(text, "selector")
    question = TopologyQuestion(key, _page_of(request), selector, request.query.get("domain"))
    return await _answer(request, lambda browser: browser.topology(question))


async def pending(request: web.Request) -> web.Response:
    """`GET /v1/pending?namespace=NS&reason=REASON&group=workload&after=POSITION&limit=N`: the pod that waits longest first."""
    check_parameters(request, (*_NAMES, "reason", "group"))
    page_of, app = _page_of(request), request.app[COLLABORATORS]
    group = request.query.get("group", "")
    if group not in ("", _BY_WORKLOAD):
        raise WireError("group", f'expected "{_BY_WORKLOAD}"')
    asked = PendingQuestion(
        page_of.namespace, page_of.after, page_of.limit, request.query.get("reason", ""), is_grouped=bool(group)
    )

    async def compute(browser: BrowseService) -> PendingPage:
        return _with_answers(await browser.pending(asked), app)

    return await _answer(request, compute)


def _listing(
    read: Callable[[BrowseService, PageOf], Awaitable[object]],
) -> Callable[[web.Request], Awaitable[web.Response]]:
    """A handler of `GET /v1/NAME?namespace=NS&after=POSITION&limit=N` that answers with a page."""

    async def handle(request: web.Request) -> web.Response:
        check_parameters(request, _NAMES)
        page_of = _page_of(request)
        return await _answer(request, lambda browser: read(browser, page_of))

    return handle


async def constraints(request: web.Request) -> web.Response:
    """`GET /v1/constraints/NAMESPACE/POD`."""
    check_parameters(request)
    namespace, pod = request.match_info["namespace"], request.match_info["pod"]
    return await _answer(request, lambda browser: browser.constraints(namespace, pod))


async def manifest(request: web.Request) -> web.Response:
    """`GET /v1/manifests/KIND/NAME`."""
    check_parameters(request)
    kind, name = request.match_info["kind"], request.match_info["name"]
    if kind not in KINDS:
        raise WireError("kind", f"expected one of {', '.join(KINDS)}")
    return await _answer(request, lambda browser: browser.manifest(kind, name))


def _page_of(request: web.Request) -> PageOf:
    return PageOf(request.query.get("namespace", ""), request.query.get("after", ""), _LIMIT.of(request))


async def _answer(request: web.Request, compute: Callable[[BrowseService], Awaitable[object]]) -> web.Response:
    """The page, once all events that have arrived are in the index. Raises Failure or NotExplained."""
    app = request.app[COLLABORATORS]
    await index_is_current(app)
    browser = browser_of(app)
    return await shared_answer(request, lambda: compute(browser))


def _with_answers(page: PendingPage, app: Collaborators) -> PendingPage:
    """The page with the last answer about each pod, as far as the decision log still has it. O(decisions + pods)."""
    latest = app.decisions.latest_of({row.uid for row in page.pods})
    return structs.replace(page, pods=tuple(_with_answer(row, latest.get(row.uid)) for row in page.pods))


def _with_answer(row: PendingRow, last: LoggedDecision | None) -> PendingRow:
    if last is None:
        return row
    answered = rfc3339(datetime.fromtimestamp(last.time, UTC))
    return structs.replace(row, reasons=last.reasons, error=last.error, answered=answered, unasked="")


def _operation(
    name: str,
    path: str,
    handler: Callable[[web.Request], Awaitable[web.Response]],
    summary: str,
    answer: Any,  # a type form, as `Operation` takes it
    *parameters: Parameter,
) -> Operation:
    paging = (_AFTER, _LIMIT.parameter)
    return Operation(
        name, "GET", path, handler, summary, answer, (*parameters, *paging), errors=frozenset({413, 429, 503})
    )


OPERATIONS: Final = (
    Operation(
        "getOverview",
        "GET",
        "/v1/overview",
        overview,
        "The extender and the cluster at a glance: health, rates, counts, topology keys.",
        Overview,
        errors=frozenset({413, 429, 503}),
    ),
    _operation(
        "getTopology",
        "/v1/topology",
        topology,
        "The domains of a label key of nodes, or the nodes of one domain.",
        TopologyPage,
        Parameter(
            "key",
            "query",
            "The label key, such as topology.kubernetes.io/zone.",
            {"type": "string", "pattern": f"^{KEY_PATTERN}$"},
            is_required=True,
        ),
        Parameter("namespace", "query", "Count pods of this namespace only."),
        Parameter(
            "selector",
            "query",
            "Count pods that this label selector selects, in kubectl's notation.",
            {"type": "string", "maxLength": LONGEST_SELECTOR, "pattern": SELECTOR_PATTERN},
        ),
        Parameter("domain", "query", "List the nodes of this domain instead of domains."),
    ),
    _operation(
        "listWorkloads",
        "/v1/workloads",
        _listing(lambda browser, page_of: browser.workloads(page_of)),
        "Pods by namespace and labels: how many wait, and what constraints they have.",
        WorkloadPage,
        _NAMESPACE,
    ),
    Operation(
        "getConstraints",
        "GET",
        "/v1/constraints/{namespace}/{pod}",
        constraints,
        "What the hard constraints of a pod count for a further pod like it, in up to 200 domains each.",
        ConstraintsPage,
        POD_PARAMETERS,
        errors=frozenset({404, 413, 429, 503}),
    ),
    _operation(
        "listPending",
        "/v1/pending",
        pending,
        "The pods without a node. The pod that waits longest comes first.",
        PendingPage,
        _NAMESPACE,
        Parameter("reason", "query", "Only pods with this reason, of the `reasons` of the page."),
        Parameter("group", "query", "One row for the pods of a workload with one reason.", {"enum": [_BY_WORKLOAD]}),
    ),
    Operation(
        "getManifest",
        "GET",
        "/v1/manifests/{kind}/{name}",
        manifest,
        "A node or a namespace as decisions read it, in the form that a what-if takes to change it.",
        dict[str, Any],
        (Parameter("kind", "path", "The kind.", {"enum": list(KINDS)}), Parameter("name", "path", "The name.")),
        errors=frozenset({404, 503}),
    ),
    _operation(
        "listPreemptions",
        "/v1/preemptions",
        _listing(lambda browser, page_of: browser.preemptions(page_of)),
        "The preemptions whose preemptor is not bound yet, the longest first. Only the leader has any.",
        PreemptionPage,
        _NAMESPACE,
    ),
    _operation(
        "listGroups",
        "/v1/groups",
        _listing(lambda browser, page_of: browser.groups(page_of)),
        "The groups of gated pods with a pod that has no node yet.",
        GroupPage,
        _NAMESPACE,
    ),
    _operation(
        "listPolicies",
        "/v1/policies",
        _listing(lambda browser, page_of: browser.policies(page_of)),
        "The scheduling policies, and how many pods each selects now.",
        PolicyPage,
        Parameter("namespace", "query", "Only policies of this namespace."),
    ),
)
