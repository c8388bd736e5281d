"""Inter-pod affinity and anti-affinity: examples of each clause, and what the cases of tests/parity do not show."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from extender.index.cluster import ClusterIndex
from extender.model.constraints.labels import ZONE
from extender.model.objects import Object
from extender.model.rejections import Reason, Rejection
from extender.rules.catalog import other_nodes
from extender.rules.frames import IndexFrame
from extender.rules.interpod_affinity import InterPodAffinity
from tests.builders import Json, index_of, matching, namespace, node, pod, pod_json, read_pod, settings, term, weighted
from tests.explaining import finished
from tests.index.counting import Deleted, Step, apply
from tests.rules.judging import against_all, normalized, parts, passing, raw, rejections

NODES: list[Object] = [node("n1", zone="z1"), node("n2", zone="z1"), node("n3", zone="z2"), node("bare")]
WEB = term("zone", app="web")
NOT_TEAM_A = matching(("team", "NotIn", ["a"]))
WITH_SELECTORS = settings().rules
WITHOUT_SELECTORS = settings(rules={"interPodAffinity": {"namespaceSelector": False}}).rules


def cluster(*objects: Object) -> ClusterIndex:
    """Two nodes in z1, one in z2, one without a zone."""
    return index_of(*NODES, *objects)


class TestParts:
    """What a rejection says beyond its reason."""

    def test_affinity_names_the_key_and_the_domain_that_has_no_pod(self) -> None:
        index = cluster(pod("web", on="n1", app="web"))
        found = Rejection("InterPodAffinity", Reason.AFFINITY, topology_key=ZONE, domain="z2")
        assert parts(index, pod_json(near=[WEB]), "n3") == found
        assert parts(index, pod_json(near=[WEB]), "bare") == replace(found, domain=None)
        assert parts(index, pod_json(near=[WEB]), "n2") is None

    def test_anti_affinity_names_the_pods_in_the_domain_on_whichever_node(self) -> None:
        index = cluster(pod("web", on="n1", app="web"), pod("web2", on="n2", app="web"), pod("far", on="n3", app="web"))
        found = parts(index, pod_json(apart=[WEB]), "n1")
        blamed = ("default/web", "default/web2")
        assert found == Rejection(
            "InterPodAffinity", Reason.ANTI_AFFINITY, topology_key=ZONE, domain="z1", count=2, limit=0, blamed=blamed
        )

    def test_anti_affinity_of_existing_pods_names_those_that_carry_the_term(self) -> None:
        index = cluster(pod("keeper", on="n1", apart=[WEB]), pod("web", on="n2", app="web"))
        found = parts(index, pod_json(app="web"), "n2")
        assert found is not None
        assert (found.reason, found.count, found.blamed) == (Reason.EXISTING_ANTI_AFFINITY, 1, ("default/keeper",))


class TestOtherNodes:
    """Where victims of a preemption may be besides the node itself: the other nodes of a domain that is rejected."""

    @pytest.mark.parametrize(
        ("objects", "fields", "expected"),
        [
            pytest.param([pod("web", on="n2", app="web")], {"apart": [WEB]}, {"n2"}, id="own anti-affinity"),
            pytest.param([pod("keeper", on="n2", apart=[WEB])], {"app": "web"}, {"n2"}, id="of existing pods"),
            pytest.param([pod("web", on="n3", app="web")], {"apart": [WEB]}, set(), id="another domain"),
            pytest.param([pod("web", on="n1", app="web")], {"near": [WEB]}, set(), id="affinity"),
        ],
    )
    def test_they_are_those_of_domains_that_anti_affinity_rejects(
        self, objects: list[Object], fields: dict[str, Any], expected: set[str]
    ) -> None:
        index = cluster(*objects)
        compiled = index.view.compiled(read_pod(pod_json(**fields)).signature)
        found = other_nodes(compiled, index.view.known["n1"])
        assert {index.view.node_names[number] for number in found} == expected


HOST_WEB = term("host", app="web")
HERE = [pod(f"web-{name}", on=name, app="web") for name in ("n1", "n2", "n3")]
ON_BARE = pod("web-bare", on="bare", app="web")
HERMITS = [pod(f"hermit-{name}", on=name, apart=[HOST_WEB]) for name in ("n1", "n2", "n3", "bare")]
WEB_N1, WEB_N3 = pod("web", on="n1", app="web"), pod("web", on="n3", app="web")
TWO_TERMS = {"near": [WEB, term("zone", tier="x")]}
ONE_TERM_EACH = [pod("a", on="n1", app="web"), pod("b", on="n1", tier="x")]
OF_BOTH = pod("both", on="n2", app="web", tier="x")
FIRST = {"near": [WEB], "app": "web"}
MIXED = {"near": [term("zone", app="db")], "apart": [HOST_WEB]}
ALL = "bare n1 n2 n3"
# Steps on a cluster with n1 and n2 in zone z1, n3 in z2 and `bare` in none; fields of the incoming pod; the nodes that
# pass; a reason of the others; and the reason that is given against every node without a look at any.
PASSING: dict[str, tuple[list[Any], Json, str, Reason | None, Reason | None]] = {
    "affinity: the whole domain of a matching pod": ([WEB_N1], {"near": [WEB]}, "n1 n2", Reason.AFFINITY, None),
    "affinity: no pod is there": ([], {"near": [WEB]}, "", Reason.AFFINITY, Reason.AFFINITY),
    "affinity: pods that match one term each": (ONE_TERM_EACH, TWO_TERMS, "", Reason.AFFINITY, Reason.AFFINITY),
    "affinity: a pod that matches both": ([*ONE_TERM_EACH, OF_BOTH], TWO_TERMS, "n1 n2", Reason.AFFINITY, None),
    "the first pod of its group": ([], FIRST, "n1 n2 n3", Reason.AFFINITY, None),
    "the second pod of its group": ([WEB_N3], FIRST, "n3", Reason.AFFINITY, None),
    "the first one again": ([WEB_N3, Deleted(WEB_N3)], FIRST, "n1 n2 n3", Reason.AFFINITY, None),
    "anti-affinity: a node without the key passes": (
        [WEB_N1, ON_BARE], {"apart": [WEB]}, "bare n3", Reason.ANTI_AFFINITY, None,
    ),
    "anti-affinity of an existing pod": (
        [pod("hermit", on="n1", apart=[WEB])], {"app": "web"}, "bare n3", Reason.EXISTING_ANTI_AFFINITY, None,
    ),
    "it does not select the pod": ([pod("hermit", on="n1", apart=[WEB])], {"app": "db"}, ALL, None, None),
    "anti-affinity: every domain is taken": (
        [*HERE, ON_BARE], {"apart": [HOST_WEB]}, "", Reason.ANTI_AFFINITY, Reason.ANTI_AFFINITY,
    ),
    "anti-affinity: one domain is free": (HERE, {"apart": [HOST_WEB]}, "bare", Reason.ANTI_AFFINITY, None),
    "anti-affinity: one node has no key": (HERE, {"apart": [WEB]}, "bare", Reason.ANTI_AFFINITY, None),
    "anti-affinity: that node is deleted": (
        [*HERE, Deleted(node("bare"))], {"apart": [WEB]}, "", Reason.ANTI_AFFINITY, Reason.ANTI_AFFINITY,
    ),
    "an earlier clause has reasons of its own": (
        [*HERE, ON_BARE, pod("db", on="n1", app="db")], MIXED, "", Reason.ANTI_AFFINITY, None,
    ),
    "existing pods in every domain": (
        HERMITS, {"app": "web"}, "", Reason.EXISTING_ANTI_AFFINITY, Reason.EXISTING_ANTI_AFFINITY,
    ),
    "existing pods in all domains but one": (HERMITS[:3], {"app": "web"}, "bare", Reason.EXISTING_ANTI_AFFINITY, None),
}  # fmt: skip


@pytest.mark.parametrize(("steps", "fields", "nodes", "because", "of_all"), PASSING.values(), ids=PASSING)
def test_the_nodes_that_pass(
    steps: list[Step], fields: Json, nodes: str, because: Reason | None, of_all: Reason | None
) -> None:
    index, incoming = apply(cluster(), *steps), pod_json(**fields)
    assert passing(index, incoming) == nodes.split()
    assert against_all(index, incoming) is of_all
    assert because is None or because in rejections(index, incoming).values()


class TestNamespaces:
    """Which pods a term can reach: those of the names listed and those of the namespaces selected."""

    @pytest.mark.parametrize(
        ("wanted", "reached"),
        [
            pytest.param(term("host", app="web"), ["own"], id="its own by default"),
            pytest.param(term("host", namespaces=["red"], app="web"), ["red"], id="the listed"),
            pytest.param(
                term("host", namespaces=["red", "ghost"], app="web"), ["ghost", "red"], id="without an object"
            ),
            pytest.param(term("host", namespace_selector=matching(team="a"), app="web"), ["red"], id="the selected"),
            pytest.param(
                term("host", namespaces=["own"], namespace_selector=matching(team="a"), app="web"),
                ["own", "red"],
                id="both",
            ),
            pytest.param(
                term("host", namespace_selector={}, app="web"), ["blue", "ghost", "own", "red"], id="every one there is"
            ),
            pytest.param(
                term("host", namespace_selector=NOT_TEAM_A, app="web"), ["blue", "own"], id="a negative selector"
            ),
            pytest.param(term("host", namespace_selector=matching(team="none"), app="web"), [], id="none"),
        ],
    )
    def test_an_asking_pod_s_term_reaches(self, wanted: Json, reached: list[str]) -> None:
        index = index_of(
            namespace("own"), namespace("red", team="a"), namespace("blue", team="b"),
            *(node(name) for name in ("own", "red", "blue", "ghost")),
            *(pod(f"web-{name}", on=name, namespace=name, app="web") for name in ("own", "red", "blue", "ghost")),
        )  # fmt: skip
        assert passing(index, pod_json(namespace="own", near=[wanted])) == reached

    @pytest.mark.parametrize(
        ("chosen", "kept_away"),
        [(matching(team="a"), ["red"]), (NOT_TEAM_A, ["blue", "ghost"]), ({}, ["blue", "ghost", "red"])],
        ids=["positive", "negative", "everything"],
    )
    def test_an_existing_pod_s_term_takes_a_namespace_without_an_object_for_unlabelled(
        self, chosen: Json, kept_away: list[str]
    ) -> None:
        hermit = pod("hermit", on="n1", namespace="own", apart=[term("host", namespace_selector=chosen, app="web")])
        index = cluster(namespace("red", team="a"), namespace("blue", team="b"), hermit)
        incoming = {name: pod_json(namespace=name, app="web") for name in ("red", "blue", "ghost")}
        assert sorted(name for name, body in incoming.items() if "n1" not in passing(index, body)) == kept_away

    @pytest.mark.parametrize(
        ("wanted", "reached"),
        [
            pytest.param(term("host", namespaces=["red"], app="web"), ["red"], id="the listed, as ever"),
            pytest.param(term("host", app="web"), ["own"], id="the own, as ever"),
            pytest.param(term("host", namespace_selector=matching(team="a"), app="web"), [], id="not the selected"),
            pytest.param(term("host", namespace_selector={}, app="web"), [], id="not every one"),
            pytest.param(
                term("host", namespaces=["own"], namespace_selector=matching(team="a"), app="web"),
                ["own"],
                id="the listed of both",
            ),
        ],
    )  # fmt: skip
    def test_without_the_field_a_term_reaches_what_it_lists(self, wanted: Json, reached: list[str]) -> None:
        """KEP-2249, "Upgrade / Downgrade Strategy": kube-scheduler ignores NamespaceSelector even if it was set."""
        names = ("own", "red", "blue")
        index = index_of(
            namespace("own"), namespace("red", team="a"), namespace("blue", team="b"),
            *(node(name) for name in names),
            *(pod(f"web-{name}", on=name, namespace=name, app="web") for name in names),
            rules=WITHOUT_SELECTORS,
        )  # fmt: skip
        assert passing(index, pod_json(namespace="own", near=[wanted])) == reached
        apart = [name for name in names if name not in reached]
        assert passing(index, pod_json(namespace="own", apart=[wanted])) == sorted(apart)

    def test_without_the_field_a_pod_is_not_its_own_first_pod(self) -> None:
        """As kube-scheduler 1.23 with the gate off: a term with a selector alone implies no namespace, not even its pod's own."""
        wanted = [term("zone", namespace_selector={}, app="web")]
        for rules, passes in ((WITH_SELECTORS, ["n1", "n2", "n3"]), (WITHOUT_SELECTORS, [])):
            assert (
                passing(
                    index_of(*NODES, namespace("own"), rules=rules), pod_json(namespace="own", near=wanted, app="web")
                )
                == passes
            )

    def test_the_field_of_pods_that_exist_can_be_switched_off_and_on(self) -> None:
        """KEP-2249, "Feature Enablement and Rollback": pods keep the field after disabling, and scheduling does not read it.

        Enabled again, it counts for the same pods: for required anti-affinity and for preferred terms of existing pods.
        """
        beyond = term("host", namespace_selector=matching(team="a"), app="web")
        hermit = pod("hermit", on="n1", namespace="own", apart=[beyond])
        friend = pod("friend", on="n2", namespace="own", prefers=[weighted(7, beyond)])
        incoming = pod_json(namespace="red", app="web")
        for rules, passes, points in (
            (WITH_SELECTORS, ["bare", "n2", "n3"], 7),
            (WITHOUT_SELECTORS, ["bare", "n1", "n2", "n3"], 0),
            (WITH_SELECTORS, ["bare", "n2", "n3"], 7),
        ):
            index = index_of(*NODES, namespace("own"), namespace("red", team="a"), hermit, friend, rules=rules)
            assert passing(index, incoming) == passes
            assert (raw(index, incoming, "n2", "n3") or [0, 0])[0] == points
            index.delete(hermit)
            assert passing(index, incoming) == ["bare", "n1", "n2", "n3"]

    def test_a_negative_selector_s_first_pod_rule_asks_for_its_own_namespace(self) -> None:
        wanted = [term("zone", namespace_selector=NOT_TEAM_A, app="web")]
        index = cluster(namespace("red", team="a"), namespace("blue", team="b"))
        assert passing(index, pod_json(namespace="red", near=wanted, app="web")) == []
        assert passing(index, pod_json(namespace="blue", near=wanted, app="web")) == ["n1", "n2", "n3"]


A, B, C = pod("a", on="n1", app="web"), pod("b", on="n2", app="web"), pod("c", on="n3", app="web")
LIKES = weighted(10, WEB)
AVOIDS: Json = {"prefers": [LIKES], "avoids": [LIKES]}
EXISTING = [
    *(pod("a", on="n1", prefers=[weighted(7, WEB)]), pod("b", on="n3", avoids=[weighted(2, WEB)])),
    pod("c", on="n3", near=[WEB, WEB]),
]


@pytest.mark.parametrize(
    ("objects", "fields", "nodes", "hard_weight", "expected"),
    [
        ([A, B, C], {"prefers": [LIKES, weighted(3, HOST_WEB)]}, "n1 n2 n3 bare", 1, [23, 23, 13, 0]),
        (EXISTING, {"app": "web"}, "n1 n3", 5, [7, 8]),
        (EXISTING, {"app": "web"}, "n1 n3", 0, [7, -2]),
        ([], {"prefers": [LIKES]}, "n1", 1, None),
        ([A], AVOIDS, "n1 n3", 1, [0, 0]),
    ],
    ids=["by pod and by term", "terms of existing pods", "hard terms weigh 0", "nothing to add", "a sum of 0"],
)
def test_weights_of_pods_and_terms_are_summed_over_the_domains_of_the_node(
    objects: list[Object], fields: Json, nodes: str, hard_weight: int, expected: list[int] | None
) -> None:
    assert raw(cluster(*objects), pod_json(**fields), *nodes.split(), hard_weight=hard_weight) == expected


@pytest.mark.parametrize(("pods", "score"), [(29, 28), (57, 56), (50, 50), (58, 57)])
def test_scores_are_divided_first_and_cut_last(pods: int, score: int) -> None:
    here = [pod(f"a{number}", on="n1", app="web") for number in range(pods)]
    index = cluster(*here, *(pod(f"b{number}", on="n3", app="web") for number in range(100)))
    assert normalized(index, pod_json(prefers=[weighted(1, WEB)]), "n1", "n3", "bare") == [score, 100, 0]
    assert normalized(cluster(A), pod_json(**AVOIDS), "n1", "n3") == [0, 0]


def test_of_hundreds_of_terms_of_existing_pods_those_with_most_domains_are_shown() -> None:
    """A tenant's terms must not make an explanation long, nor its computation."""
    made = index_of(*(node(f"n{at}") for at in range(3)))
    for at in range(30):
        made.upsert(pod(f"single-{at}", on="n0", apart=[term("host", selector=matching(("app", "NotIn", [f"x{at}"])))]))
    for at in range(3):
        made.upsert(pod(f"wide-{at}", on=f"n{at}", apart=[term("host", app="web")]))
    incoming = pod("asking", app="web")
    states = finished(
        InterPodAffinity().constraint_states(incoming, made.view.compiled(incoming.signature), made.view, IndexFrame())
    )
    assert (len(states), states[-1].more_terms) == (20, 11)
    assert len({each.pods for each in states}) == 20, "each is another one"
    assert [(each.domain, each.count, each.pods) for each in states[0].domains] == [
        (f"n{at}", 1, (f"default/wide-{at}",)) for at in range(3)
    ]
