"""The page of workloads: which labels tell workloads apart."""

from __future__ import annotations

from extender.model.answers.pages import PageOf
from extender.verbs.browse.pods import workload_page
from tests.builders import index_of, node, pod, spread, term, weighted
from tests.explaining import finished


def test_pods_of_all_revisions_and_ordinals_are_one_workload() -> None:
    index = index_of(
        node("n1"),
        pod("web-1", on="n1", app="web", labels={"pod-template-hash": "old"}),
        pod("web-2", app="web", labels={"pod-template-hash": "new"}),
        pod("db-0", on="n1", app="db", labels={"statefulset.kubernetes.io/pod-name": "db-0"}),
        pod("db-1", on="n1", app="db", labels={"statefulset.kubernetes.io/pod-name": "db-1"}),
    )
    page = finished(workload_page(PageOf(), index.view))
    assert [(row.labels, row.selector, row.pods, row.pending, row.example_pod) for row in page.workloads] == [
        ({"app": "db"}, "app=db", 2, 0, "db-0"),
        ({"app": "web"}, "app=web", 2, 1, "web-2"),
    ]


def test_constraints_are_counted_by_kind() -> None:
    index = index_of(
        pod(
            "web",
            near=[term("zone", app="db")],
            apart=[term("host", app="web"), term("zone", app="noisy")],
            prefers=[weighted(1, term("zone", app="db"))],
            spreads=[spread("zone", app="web"), spread("host", hard=False, app="web")],
        )
    )
    (row,) = finished(workload_page(PageOf(), index.view)).workloads
    assert row.constraints == {
        "podAffinity": 1,
        "podAntiAffinity": 2,
        "preferredPodAffinity": 1,
        "topologySpread": 1,
        "preferredTopologySpread": 1,
    }
