"""Pages of pods: single ones by name, and workloads."""

from __future__ import annotations

from extender.index.cluster import ClusterIndex
from extender.model.answers.pages import PageOf
from extender.model.objects import Pod
from extender.verbs.browse.pods import PodFinder, workload_page
from tests.builders import index_of, node, pod, spread, term, weighted
from tests.explaining import finished


def steps_to_find(finder: PodFinder, name: str) -> tuple[str, int]:
    """The UID, and after how many steps."""
    work, steps = finder.find("default", name), 0
    while True:
        try:
            next(work)
        except StopIteration as end:
            found: Pod | None = end.value
            return "" if found is None else found.uid, steps
        steps += 1


def crowd() -> ClusterIndex:
    return index_of(node("n1"), node("n2"), *(pod(f"p{at}", on=f"n{at % 2 + 1}") for at in range(2000)))


def test_a_pod_is_found_wherever_it_is() -> None:
    index = index_of(
        node("n1"),
        pod("placed", on="n1"),
        pod("lost", on="ghost"),
        pod("waits"),
        pod("passed"),
        pod("waits", namespace="other", uid="u-other"),
    )
    index.assume(index.pods["uid-passed"], ["n1"], 0.0)
    finder = PodFinder(index.view)
    for name in ("placed", "lost", "waits", "passed"):
        found = finished(finder.find("default", name))
        assert found is index.pods[f"uid-{name}"], "the pod as the watch shows it"
    assert finished(finder.find("default", "none")) is None
    assert finished(finder.find("other", "waits")) is index.pods["u-other"]


def test_a_pod_that_was_found_is_found_at_once() -> None:
    finder = PodFinder(crowd().view)
    assert steps_to_find(finder, "p1999")[1] > 0
    assert steps_to_find(finder, "p1999") == ("uid-p1999", 0)


def test_a_pod_that_replaces_another_of_its_name_is_found() -> None:
    index = crowd()
    finder = PodFinder(index.view)
    assert steps_to_find(finder, "p7")[0] == "uid-p7"
    index.upsert(pod("p7", on="n2", terminating=True))
    index.upsert(pod("p7", uid="u-new"))
    assert steps_to_find(finder, "p7")[0] == "u-new"
    index.delete(index.pods["u-new"])
    index.delete(index.pods["uid-p7"])
    assert steps_to_find(finder, "p7")[0] == ""


def test_a_bounded_number_of_names_is_remembered() -> None:
    finder = PodFinder(crowd().view)
    for at in range(300):
        steps_to_find(finder, f"p{at}")
    assert steps_to_find(finder, "p299")[1] == 0
    assert steps_to_find(finder, "p0")[1] > 0


# -- The page of workloads: which labels tell workloads apart ------------------------------------------------------------


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
