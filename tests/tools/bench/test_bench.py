"""The parts of the bench whose fault no figure would show: legal objects, bounds that are held, scenarios that are read strictly.

That it plays, and that every figure is there, is shown by `test_command.py`.
"""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import orjson
import pytest
import yaml

from extender.model.documents import DocumentError
from extender.settings.configuration import Settings
from extender.settings.limits import NamespaceLimits
from extender.simulator.scenario.language import parse_scenario
from extender.wire.extender_v1 import decode_args
from extender.wire.objects.kinds import NODES, PODS
from tests.tools.bench import other_pods
from tests.tools.bench.cluster import ZONE, RequestMaker, SyntheticCluster, pod_events
from tests.tools.bench.in_process import fill, play
from tests.tools.bench.mode_bursts import join, ratios
from tests.tools.bench.player import Player
from tests.tools.bench.results import (
    Audit,
    Played,
    Row,
    check_bounds,
    compare,
    quantile,
    results_of,
    typical,
)
from tests.tools.bench.scenario import KIND, parse_bench, parse_modes, plan, plan_modes
from tests.tools.bench.small_scenario import SHIPPED, document, load, scenario
from tests.tools.bench.subject import Subject, recount
from tests.tools.bench.tables import tables

# -- scenarios


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_every_shipped_scenario_is_legal_and_has_something_short_and_bounds(path: Any) -> None:
    raw = yaml.safe_load(path.read_text("utf-8"))
    if raw["kind"] == KIND:
        modes = parse_modes(raw)
        burst = parse_scenario(yaml.safe_load((path.parent / modes.burst).read_text("utf-8")))
        assert plan_modes(modes, burst, Settings(), "short")
        assert (modes.name, {"violations", "pending"} <= {bound.figure for bound in modes.bounds}) == (path.stem, True)
    else:
        read = parse_bench(raw)
        assert (read.name, bool(plan(read, "short")), bool(read.bounds)) == (path.stem, True, True)


MODES = {"apiVersion": "placement.extender.dev/v1alpha1", "kind": KIND, "name": "small", "burst": "burst.yaml"}
FAULTS: list[tuple[Callable[[Any], object], dict[str, Any], str]] = [
    (parse_bench, document(cluster={"node": 3}), 'cluster.node: unknown field, did you mean "nodes"?'),
    (parse_bench, document(cases=[{"labels": [], "answer": ["best"]}]), "cases[0].answer[0]: expected str matching"),
    (parse_bench, document(cases=[{"labels": [], "measure": ["luck"]}]), "cases[0].measure[0]: expected"),
    (
        parse_bench,
        document(cluster={}, cases=[{"labels": [], "names": [5001]}]),
        "cases[0].names: must not be more than cluster.nodes, 5000",
    ),
    (parse_bench, document(bounds=[{"figure": "x"}]), "bounds[0].figure: expected either atMost or atLeast"),
    (
        parse_bench,
        document(bounds=[{"figure": "x", "atMost": 1, "where": {"pod": 1}}]),
        "bounds[0].where: expected dimensions",
    ),
    (parse_modes, MODES | {"cases": [{"labels": [], "pods": []}]}, "cases[0].pods: there must be at least one size"),
]


@pytest.mark.parametrize(("parse", "found", "problem"), FAULTS, ids=[each[2] for each in FAULTS])
def test_a_fault_is_rejected_with_its_path(parse: Callable[[Any], object], found: dict[str, Any], problem: str) -> None:
    with pytest.raises(DocumentError) as raised:
        parse(found)
    assert [each.replace("`", "").startswith(problem) for each in raised.value.problems] == [True]


def test_cases_become_loads_and_points() -> None:
    matrix = {"labels": ["a"], "pods": [5, 9], "selectors": [1, 2], "names": [3, 4], "answer": ["best7", "all"]}
    loads = plan(scenario(cases=[matrix]))
    assert [(each.pods, each.selectors) for each in loads] == [(5, 1), (5, 2), (9, 1), (9, 2)]
    made = [(point.names, point.settings.placement, point.settings.answers.shortlist) for point in loads[0].points]
    assert made == [(names, "cooperative", shortlist) for names in (3, 4) for shortlist in (7, 0)]
    shared = [{"labels": ["a"], "names": [3]}, {"labels": ["a"], "names": [3], "measure": ["retries"], "rate": 7}]
    (both,) = plan(scenario(cases=shared))
    assert [(set(point.measures), both.rate) for point in both.points] == [({"requests", "retries"}, 7.0)]
    sized = plan(scenario(cases=[{"labels": ["b"], "names": [201], "nodes": 300}]), "b")[0]
    assert (sized.scenario.cluster.nodes, sized.place(sized.points[0])["nodes"]) == (300, 300)


# -- the synthetic cluster


def test_existing_pods_are_legal_and_have_the_terms_of_the_asking_ones() -> None:
    cluster = SyntheticCluster(load(cases=[{"labels": [], "names": [5], "pods": [48], "selectors": [3]}]))
    pod = PODS.decode_event(next(cluster.pod_lines())).object
    assert pod is not None
    incoming = decode_args(RequestMaker(cluster, 5, seed=1).filter_body(cluster.incoming_pod(0))).pod
    assert pod.signature.affinity == incoming.signature.affinity
    assert pod.signature.labels == {**incoming.signature.labels, ZONE: cluster.zone_named(pod.node)}
    for selector in range(3):
        nodes = [node for pod, node in cluster.existing() if pod.selector == selector]
        assert (len(set(nodes)), set(Counter(map(cluster.zone, nodes)).values())) == (16, {4})
    pods = [pod for pod, _ in cluster.existing()] + [cluster.incoming_pod(number) for number in range(100)]
    assert len({pod.uid for pod in pods}) == len({(pod.namespace, pod.name) for pod in pods}) == 148


def test_a_request_names_matching_nodes_once_and_windows_move_on() -> None:
    cluster = SyntheticCluster(load(requests={"nodeSelectorShare": 1}))
    nodes = {node.name: node for line in cluster.node_lines() if (node := NODES.decode_event(line).object)}
    requests = RequestMaker(cluster, 40, seed=1)
    requested = [decode_args(requests.filter_body(cluster.incoming_pod(number))) for number in range(20)]
    assert len({tuple(args.node_names or []) for args in requested}) > 10
    for args in requested:
        named = [nodes[name] for name in args.node_names or []]
        assert len(set(args.node_names or [])) == len(named) == 40
        assert all(args.pod.signature.node_affinity.matches(node.name, node.labels) for node in named)


def test_a_turn_becomes_a_number_and_a_selector_part_of_a_text() -> None:
    spread = {"maxSkew": "{t}", "topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": "a-{v}"}}}
    template = {"labels": {"app": "a-{v}"}, "turns": 5, "spec": {"topologySpreadConstraints": [spread]}}
    cluster = SyntheticCluster(load(template=template, cases=[{"labels": [], "names": [5], "selectors": [1]}]))
    bodies = [orjson.loads(cluster.writer.incoming(cluster.incoming_pod(number))) for number in range(10)]
    assert {body["spec"]["topologySpreadConstraints"][0]["maxSkew"] for body in bodies} == {1, 2, 3, 4, 5}
    assert bodies[0]["metadata"]["labels"] == {"app": "a-0"}


def test_a_life_is_five_events_and_leaves_nothing() -> None:
    source, alive = pod_events(SyntheticCluster(load()), 1), dict[str, str]()
    for _ in range(250):
        event = PODS.decode_event(next(source).line)
        assert event.object is not None
        alive[event.object.uid] = event.object.node
        if event.type == "DELETED":
            del alive[event.object.uid]
    assert alive == {}


# -- what is measured


def test_answered_pods_are_bound_and_counted_before_the_next_request_and_the_audit_sees_drift() -> None:
    small, subject = load(), Subject(NamespaceLimits())
    cluster = SyntheticCluster(small)
    fill(cluster, subject)
    before = len(subject.index.pods)
    (point,) = small.points
    figures = Player(cluster, subject.index).play(subject.decisions(point.settings), point)
    assert figures["rejectedShare"] < 1
    assert len(subject.index.pods) > before
    assert not subject.index.assumed.held, "each was seen on its node"
    assert recount(subject.index).drift == ()
    next(iter(subject.index.counts.terms.owned())).add(0, 1)
    assert len(recount(subject.index).drift) == 1


MEASURES = {
    "events": {"apply.eventsPerSecond"},
    "retries": {"retry.mean", "retrySame.mean"},
    "relabel": {"relabel.max", "relabel.pods"},
    "policies": {"policies.unmatched", "policies.selected"},
    "gangs": {"decision.p50", "gang.bytesPerPod", "gang.eventsPerSecond", "besideGangs.filter"},
    "hostile": {"hostile.max", "hostile.slowdown", "hostile.rss"},
}


def test_a_play_has_every_figure_of_what_it_measures_and_leaves_the_index_as_it_was() -> None:
    measure = ["requests", *MEASURES]
    case = {"labels": [], "pods": [30], "selectors": [3], "names": [10], "answer": ["best5"], "measure": measure}
    played = play(load(cases=[case]))
    (only,) = played.rows
    figures = {"filter.p50", "cpu.p99", "echoAll.max", "first.mean", "rss", "load", "prioritize.p50", "bytesIn"}
    assert only.figures.keys() >= figures.union(*MEASURES.values())
    assert only.figures["decision.slots"] == 1
    assert sum(only.figures[f"share.{part}"] for part in ("decode", "decide", "encode")) == pytest.approx(1)
    assert only.place == {"pods": 30, "selectors": 3, "names": 10, "answer": "best5"}
    assert (played.audit.drift, played.audit.groups > 0) == ((), True)


@pytest.mark.parametrize("unlimited", [False, True])
def test_tenants_are_measured_with_the_budget_of_the_scenario(
    monkeypatch: pytest.MonkeyPatch, *, unlimited: bool
) -> None:
    monkeypatch.setattr(other_pods, "_PODS", 60)
    case = {"labels": [], "pods": [30], "selectors": [3], "names": [10], "measure": ["tenants"]}
    limits = dict.fromkeys(("selectors", "topologyKeys", "crossNamespaceTerms"), 10**6 if unlimited else 50)
    cluster = {"nodes": 200, "zones": 4, "namespaces": 5, "nodeLabels": 200}
    played = play(load(cases=[case], cluster=cluster, namespaceLimits=limits | {"compileSteps": 10**6}))
    figures = played.rows[0].figures
    for name in ("tenant", "reaching"):
        assert figures[f"{name}.slowdown"] > 0
        assert (figures[f"{name}.waiting"] > 0) is not unlimited
    assert played.audit.drift == ()


# -- figures, bounds and comparisons


@pytest.mark.parametrize(
    ("times", "share", "expected"),
    [(range(1, 102), 0.99, 100), (range(1, 1001), 0.99, 990), ([3, 1, 2], 0.5, 2), ([7], 0.99, 7), ([1, 2], 0.5, 1)],
)
def test_a_quantile_is_the_nearest_rank(times: list[int], share: float, expected: int) -> None:
    assert quantile(times, share) == expected


def row(via: str = "process", /, pods: int = 30, **figures: float) -> Row:
    place: dict[str, int | str] = {"pods": pods, "selectors": 3, "names": 10, "answer": "decisive"}
    return Row("small", via, place, figures)


NOT_HELD: tuple[int, list[str]] = (0, [])
BOUNDS: list[tuple[dict[str, Any], tuple[int, list[str]]]] = [
    ({"figure": "x", "atMost": 3}, (1, [])),
    ({"figure": "x", "atMost": 2}, (1, ["x is 3, expected at most 2"])),
    ({"figure": "x", "atLeast": 5}, (1, ["x is 3, expected at least 5"])),
    ({"figure": "x", "atMost": 1.5, "relativeTo": "y"}, (1, [])),
    ({"figure": "x", "atMost": 1.4, "relativeTo": "y"}, (1, ["x is 1.5 × y, expected at most 1.4"])),
    ({"figure": "x", "atMost": 9, "relativeTo": "zero"}, (1, ["x is inf × zero, expected at most 9"])),
    (
        {"figure": "x", "atMost": 1.2, "baseline": {"pods": 90}},
        (1, ["x is 1.5 × the same figure at pods 90, expected at most 1.2"]),
    ),
    ({"figure": "absent", "atMost": 0}, NOT_HELD),
    ({"figure": "x", "atMost": 0, "where": {"pods": 31}}, NOT_HELD),
    ({"figure": "x", "atMost": 0, "via": "http"}, NOT_HELD),
    ({"figure": "x", "atMost": 0, "relativeTo": "absent"}, NOT_HELD),
    ({"figure": "x", "atMost": 0, "baseline": {"pods": 31}}, NOT_HELD),
    ({"figure": "x", "atMost": 0, "baseline": {"pods": 30}}, NOT_HELD),
]


@pytest.mark.parametrize(("bound", "expected"), BOUNDS, ids=[str(each) for each, _ in BOUNDS])
def test_a_bound_is_held_against_the_rows_that_it_speaks_of(
    bound: dict[str, Any], expected: tuple[int, list[str]]
) -> None:
    rows = [row(x=3.0, y=2.0, zero=0.0), row(pods=90, x=2.0)]
    checked = check_bounds([scenario(bounds=[{"where": {"pods": 30}, **bound}])], rows)
    assert (checked.compared, [line.partition("): ")[2] for line in checked.missed]) == expected


def test_ratios_are_new_over_old_for_the_rows_and_figures_of_both_runs() -> None:
    new = [row(x=1.0, y=1.0, z=0.0), row(pods=31, x=8.0), row(pods=32, x=1.0)]
    compared = compare(new, [row(x=2.0, z=4.0), row(pods=31, x=2.0), row("http", x=1.0)])
    assert [(each.row, each.ratios) for each in compared] == [(new[0], {"x": 0.5}), (new[1], {"x": 4.0})]
    assert typical(compared, "x") == pytest.approx(2**0.5)
    assert typical(compared, "y") is None


def test_runs_of_a_mode_are_joined_by_the_median_and_compared_with_mode_decisive() -> None:
    runs = [{"bound.perSecond": speed, "violations": found} for speed, found in ((10.0, 0), (90.0, 1), (20.0, 2))]
    assert join(runs) == {"bound.perSecond": 20.0, "violations": 3}
    decisive = {"bound.perSecond": 100.0, "decided.perSecond": 200.0}
    found = ratios({"bound.perSecond": 50.0, "decided.perSecond": 20.0}, decisive)
    assert found == {"boundOfDecisive": 0.5, "decidedOfDecisive": 0.1}


def test_each_kind_of_row_has_a_table_of_the_figures_that_it_has() -> None:
    first = row()
    first.figures.update({"filter.p50": 1.5, "filter.p99": 200.0, "echo.p50": 0.5, "share.decode": 0.25})
    mode = Row("modes", "http", {"pods": 30, "mode": "bind"}, {"bound.perSecond": 120.4, "waited.share": 0.03})
    shown = [
        [(str(column.header), str(next(iter(column.cells)))) for column in table.columns][2:]
        for table in tables(results_of([Played([first, mode], Audit((), 0))]))
    ]
    place = [("pods", "30"), ("selectors", "3"), ("names", "10"), ("answer", "decisive")]
    columns = [("filter.p50", "1.5"), ("filter.p99", "200"), ("echo.p50", "0.5"), ("filter.p50/echo.p50", "3.00")]
    assert shown == [
        [*place, *columns, ("share.decode", "25%")],
        [("pods", "30"), ("mode", "bind"), ("bound.perSecond", "120"), ("waited.share", "3%")],
    ]


def spec_of(name: str) -> dict[str, Any]:
    (found,) = [each for each in map(read, SHIPPED) if each.name == name]
    return {
        "spec": found.template.spec,
        "cluster": found.cluster,
        "labels": found.template.labels,
        "size": (found.cases[0].pods, found.cases[0].selectors),
    }


def read(path: Path) -> Any:
    document = yaml.safe_load(path.read_text("utf-8"))
    return (parse_modes if document["kind"] == "ModesScenario" else parse_bench)(document)


def terms_of(spec: dict[str, Any], side: str, strength: str) -> list[dict[str, Any]]:
    """The terms of a template: each is alone."""
    (found,) = spec["spec"]["affinity"][side][f"{strength}DuringSchedulingIgnoredDuringExecution"]
    return [found.get("podAffinityTerm", found)]


@pytest.mark.parametrize(
    ("prefix", "side", "strength"),
    [
        ("", "podAntiAffinity", "required"),
        ("required-affinity-", "podAffinity", "required"),
        ("preferred-affinity-", "podAffinity", "preferred"),
        ("preferred-anti-affinity-", "podAntiAffinity", "preferred"),
    ],
)
def test_a_pair_of_each_kind_of_term_differs_in_its_selector_and_in_nothing_else(
    prefix: str, side: str, strength: str
) -> None:
    """KEP-2249: one namespace without a selector against 100 with it."""
    many, one = spec_of(f"{prefix}hundred-namespaces"), spec_of(f"{prefix}one-namespace")
    (term,) = terms_of(many, side, strength)
    assert term.pop("namespaceSelector") == {"matchLabels": {"team": "devops"}}
    kinds = [found["cluster"] for found in (many, one)]
    assert [(found.namespaces, found.one_namespace) for found in kinds] == [(100, False), (100, True)]
    many["cluster"] = msgspec.structs.replace(many["cluster"], one_namespace=True)
    assert many == one


def test_the_pair_of_min_domains_differs_in_the_field_and_in_nothing_else() -> None:
    """KEP-3022: hard spread with minDomains against without."""
    used, unused = spec_of("with-min-domains"), spec_of("without-min-domains")
    assert used["spec"]["topologySpreadConstraints"][0].pop("minDomains") == used["cluster"].zones
    assert used == unused
