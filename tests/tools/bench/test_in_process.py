"""The players in process: every figure is there, the cluster changes between questions, the audit sees drift."""

import pytest

from extender.settings.limits import NamespaceLimits
from tests.tools.bench.cluster import SyntheticCluster
from tests.tools.bench.in_process import fill, play
from tests.tools.bench.player import Player
from tests.tools.bench.probes import measure_policies
from tests.tools.bench.results import compare, results_of
from tests.tools.bench.small_scenario import load
from tests.tools.bench.subject import Subject, recount
from tests.tools.bench.tables import ratio_table, tables

QUESTIONS = {
    f"{name}.{key}"
    for name in ("filter", "cpu", "decode", "decide", "encode", "echo", "echoAll", "event", "first")
    for key in ("p50", "p99", "max", "mean")
}
ALWAYS = {"share.decode", "share.decide", "share.encode", "requestsPerSecond", "bytesIn", "bytesOut", "rejectedShare"}
MEASURES = ["requests", "events", "retries", "relabel", "policies", "gangs", "hostile"]


def test_a_play_has_every_figure_of_what_it_measures() -> None:
    case = {"labels": [], "pods": [30], "selectors": [3], "names": [10], "answer": ["best5"], "measure": MEASURES}
    played = play(load(cases=[case]))
    (only,) = played.rows
    assert only.figures.keys() >= QUESTIONS | ALWAYS | {"rss", "load", "prioritize.p50", "prioritizeEcho.p50"}
    assert only.figures.keys() >= {
        "apply.eventsPerSecond",
        "retry.mean",
        "retrySame.mean",
        "relabel.max",
        "relabel.pods",
    }
    assert only.figures.keys() >= {"policies.unmatched", "policies.selected"}
    assert only.figures.keys() >= {"decision.p50", "gang.bytesPerPod", "gang.eventsPerSecond", "besideGangs.filter"}
    assert only.figures["decision.slots"] == 1
    assert only.figures.keys() >= {"hostile.max", "hostile.slowdown", "hostile.rss"}
    assert sum(only.figures[f"share.{part}"] for part in ("decode", "decide", "encode")) == pytest.approx(1)
    assert only.place == {"pods": 30, "selectors": 3, "names": 10, "answer": "best5"}
    assert played.audit.drift == ()
    assert played.audit.groups > 0


@pytest.mark.parametrize("unlimited", [False, True])
def test_tenants_are_measured_with_the_budget_of_the_scenario(unlimited: bool) -> None:  # noqa: FBT001 (a parameter)
    case = {"labels": [], "pods": [30], "selectors": [3], "names": [10], "measure": ["tenants"]}
    limits = dict.fromkeys(("selectors", "topologyKeys", "crossNamespaceTerms", "compileSteps"), 10**6)
    cluster = {"nodes": 200, "zones": 4, "namespaces": 5, "nodeLabels": 200}
    small = load(cases=[case], cluster=cluster, namespaceLimits=limits if unlimited else {})
    played = play(small)
    figures = played.rows[0].figures
    assert {name: figures[f"{name}.slowdown"] > 0 for name in ("tenant", "reaching")} == {
        "tenant": True,
        "reaching": True,
    }
    assert (figures["reaching.waiting"] > 0) is not unlimited
    assert (figures["tenant.waiting"] > 0) is not unlimited
    assert played.audit.drift == ()


def test_policies_are_measured_as_multiples_and_none_is_left() -> None:
    case = {"labels": [], "pods": [30], "selectors": [3], "names": [10], "measure": ["policies"]}
    small, subject = load(cases=[case]), Subject(NamespaceLimits())
    cluster = SyntheticCluster(small)
    fill(cluster, subject)
    kept: list[int] = []
    subject.index.policies.changes.subscribe(lambda *_: kept.append(len(subject.index.policies)))
    (point,) = small.points
    figures = measure_policies(subject, Player(cluster, subject.index), point)
    assert figures.keys() == {"policies.unmatched", "policies.selected"}
    assert all(ratio > 0 for ratio in figures.values())
    assert max(kept) == 200
    assert len(subject.index.policies) == 0
    assert recount(subject.index).drift == ()


def test_what_is_not_measured_has_no_figure() -> None:
    (only,) = play(load()).rows
    assert not {"apply.eventsPerSecond", "retry.mean", "relabel.max"} & only.figures.keys()


def test_answered_pods_are_bound_and_counted_before_the_next_request() -> None:
    small, subject = load(), Subject(NamespaceLimits())
    cluster = SyntheticCluster(small)
    fill(cluster, subject)
    before = len(subject.index.pods)
    (point,) = small.points
    figures = Player(cluster, subject.index).play(subject.decisions(point.settings), point)
    placed = [pod for pod in subject.index.pods.values() if pod.node and pod.name.split("-")[2].startswith("3000")]
    assert figures["rejectedShare"] < 1
    assert len(subject.index.pods) > before
    assert placed
    assert not subject.index.assumed.held, "each was seen on its node"


def test_retried_pods_are_rejected_and_leave_nothing_behind() -> None:
    alone = {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"color": "nobody"}}}
        ]
    }
    template = {"labels": {"color": "herd-{v}"}, "spec": {"affinity": {"podAffinity": alone}}}
    case = {"labels": [], "pods": [30], "selectors": [3], "names": [10], "measure": ["retries"]}
    (only,) = play(load(template=template, cases=[case])).rows
    assert only.figures["retry.rejectedShare"] == 1


def test_the_audit_names_a_count_that_is_not_true() -> None:
    small, subject = load(), Subject(NamespaceLimits())
    cluster = SyntheticCluster(small)
    fill(cluster, subject)
    Player(cluster, subject.index).play_first(subject.decisions(small.points[0].settings))
    assert recount(subject.index).drift == ()
    next(iter(subject.index.counts.terms.owned())).add(0, 1)
    assert len(recount(subject.index).drift) == 1


def test_tables_show_rows_and_leave_out_what_was_not_measured() -> None:
    results = results_of([play(load())])
    questions, cluster = tables(results)
    assert questions.row_count == cluster.row_count == 1
    headings = [str(column.header) for column in questions.columns]
    assert headings[:6] == ["scenario", "via", "pods", "selectors", "names", "answer"]
    assert "prioritize p50" not in headings, "a decisive answer leaves nothing to prioritize"
    assert ratio_table(compare(results.rows, results.rows)).row_count == 2
