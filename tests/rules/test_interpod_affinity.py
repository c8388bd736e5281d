"""Inter-pod affinity and anti-affinity: examples of each clause, and what the cases of tests/parity do not show."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson
import pytest

from extender.index.cluster import ClusterIndex
from extender.model.constraints.labels import ZONE
from extender.model.objects import Object
from extender.model.rejections import Reason, Rejection
from extender.rules.catalog import other_nodes
from extender.rules.frames import IndexFrame
from extender.rules.interpod_affinity import InterPodAffinity
from extender.wire.objects.kinds import PODS
from tests.builders import Json, index_of, matching, namespace, node, pod, pod_json, settings, term, weighted
from tests.explaining import finished
from tests.rules.judging import against_all, normalized, parts, passing, raw, reason

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
        compiled = index.view.compiled(PODS.decode_object(orjson.dumps(pod_json(**fields))).signature)
        found = other_nodes(compiled, index.view.known["n1"])
        assert {index.view.node_names[number] for number in found} == expected


class TestRequiredAffinity:
    """All terms at once, on one existing pod; its domains decide."""

    def test_the_whole_domain_of_a_matching_pod_passes(self) -> None:
        index = cluster(pod("web", on="n1", app="web"))
        assert passing(index, pod_json(near=[WEB])) == ["n1", "n2"]
        assert reason(index, pod_json(near=[WEB]), "n3") is Reason.AFFINITY

    def test_two_pods_that_match_one_term_each_do_not_help(self) -> None:
        index = cluster(pod("a", on="n1", app="web"), pod("b", on="n1", tier="x"))
        assert passing(index, pod_json(near=[WEB, term("zone", tier="x")])) == []
        index.upsert(pod("both", on="n2", app="web", tier="x"))
        assert passing(index, pod_json(near=[WEB, term("zone", tier="x")])) == ["n1", "n2"]


class TestFirstPod:
    """The first pod of a group that wants to be near itself may go anywhere that has the keys."""

    SELF = pod_json(near=[WEB], app="web")

    def test_it_goes_anywhere_with_the_key(self) -> None:
        assert passing(cluster(), self.SELF) == ["n1", "n2", "n3"]

    def test_it_holds_again_when_the_last_match_has_gone(self) -> None:
        index = cluster(web := pod("web", on="n3", app="web"))
        assert passing(index, self.SELF) == ["n3"]
        index.delete(web)
        assert passing(index, self.SELF) == ["n1", "n2", "n3"]


class TestAntiAffinity:
    """Own terms, term by term; and the terms of pods that are there."""

    def test_the_domains_of_matching_pods_are_rejected_and_nodes_without_the_key_are_not(self) -> None:
        index = cluster(pod("web", on="n1", app="web"), pod("lost", on="bare", app="web"))
        asked = pod_json(apart=[WEB])
        assert passing(index, asked) == ["bare", "n3"]
        assert reason(index, asked, "n1") is Reason.ANTI_AFFINITY

    def test_an_existing_pod_keeps_away_the_pods_that_its_term_selects(self) -> None:
        index = cluster(pod("hermit", on="n1", apart=[WEB]))
        assert passing(index, pod_json(app="web")) == ["bare", "n3"]
        assert reason(index, pod_json(app="web"), "n2") is Reason.EXISTING_ANTI_AFFINITY
        assert len(passing(index, pod_json(app="db"))) == 4


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
        asked = {name: pod_json(namespace=name, app="web") for name in ("red", "blue", "ghost")}
        assert sorted(name for name, body in asked.items() if "n1" not in passing(index, body)) == kept_away

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
        asked = pod_json(namespace="red", app="web")
        for rules, passes, points in (
            (WITH_SELECTORS, ["bare", "n2", "n3"], 7),
            (WITHOUT_SELECTORS, ["bare", "n1", "n2", "n3"], 0),
            (WITH_SELECTORS, ["bare", "n2", "n3"], 7),
        ):
            index = index_of(*NODES, namespace("own"), namespace("red", team="a"), hermit, friend, rules=rules)
            assert passing(index, asked) == passes
            assert (raw(index, asked, "n2", "n3") or [0, 0])[0] == points
            index.delete(hermit)
            assert passing(index, asked) == ["bare", "n1", "n2", "n3"]

    def test_a_negative_selector_s_first_pod_rule_asks_for_its_own_namespace(self) -> None:
        wanted = [term("zone", namespace_selector=NOT_TEAM_A, app="web")]
        index = cluster(namespace("red", team="a"), namespace("blue", team="b"))
        assert passing(index, pod_json(namespace="red", near=wanted, app="web")) == []
        assert passing(index, pod_json(namespace="blue", near=wanted, app="web")) == ["n1", "n2", "n3"]


class TestScore:
    """Weights of (pod, term) pairs, summed over the domains of the node."""

    def test_weights_add_up_by_pod_and_by_term(self) -> None:
        index = cluster(pod("a", on="n1", app="web"), pod("b", on="n2", app="web"), pod("c", on="n3", app="web"))
        liked = [weighted(10, WEB), weighted(3, term("host", app="web"))]
        assert raw(index, pod_json(prefers=liked), "n1", "n2", "n3", "bare") == [23, 23, 13, 0]

    def test_existing_pods_preferences_and_hard_terms_count_as_well(self) -> None:
        index = cluster(
            pod("a", on="n1", prefers=[weighted(7, WEB)]),
            pod("b", on="n3", avoids=[weighted(2, WEB)]),
            pod("c", on="n3", near=[WEB, WEB]),
        )
        assert raw(index, pod_json(app="web"), "n1", "n3", hard_weight=5) == [7, 8]
        assert raw(index, pod_json(app="web"), "n1", "n3", hard_weight=0) == [7, -2]

    def test_nothing_to_add_is_no_score_and_a_sum_of_nought_is_one(self) -> None:
        assert raw(cluster(), pod_json(prefers=[weighted(10, WEB)]), "n1") is None
        index = cluster(pod("a", on="n1", app="web"))
        asked = pod_json(prefers=[weighted(10, WEB)], avoids=[weighted(10, WEB)])
        assert raw(index, asked, "n1", "n3") == [0, 0]
        assert normalized(index, asked, "n1", "n3") == [0, 0]

    @pytest.mark.parametrize(("pods", "score"), [(29, 28), (57, 56), (50, 50), (58, 57)])
    def test_scores_are_divided_first_and_cut_last(self, pods: int, score: int) -> None:
        here = [pod(f"a{number}", on="n1", app="web") for number in range(pods)]
        most = [pod(f"b{number}", on="n3", app="web") for number in range(100)]
        index = cluster(*here, *most)
        assert normalized(index, pod_json(prefers=[weighted(1, WEB)]), "n1", "n3", "bare") == [score, 100, 0]


class TestRefusedEverywhere:
    """One reason against every node is told without a look at any, and only where it is certain."""

    ALONE = term("host", app="web")
    FULL = tuple(pod(f"web-{name}", on=name, app="web") for name in ("n1", "n2", "n3"))

    def test_no_pod_is_there_to_be_near(self) -> None:
        assert against_all(cluster(), pod_json(near=[WEB])) is Reason.AFFINITY
        assert against_all(cluster(), pod_json(app="web", near=[WEB])) is None
        assert against_all(cluster(pod("web", on="n1", app="web")), pod_json(near=[WEB])) is None

    def test_every_domain_is_taken(self) -> None:
        hosts = cluster(*self.FULL, pod("web-bare", on="bare", app="web"))
        assert against_all(hosts, pod_json(apart=[self.ALONE])) is Reason.ANTI_AFFINITY
        assert against_all(cluster(*self.FULL), pod_json(apart=[self.ALONE])) is None

    def test_a_node_without_the_key_is_free(self) -> None:
        index = cluster(*self.FULL)
        assert against_all(index, pod_json(apart=[WEB])) is None
        index.delete(node("bare"))
        assert against_all(index, pod_json(apart=[WEB])) is Reason.ANTI_AFFINITY

    def test_an_earlier_clause_has_reasons_of_its_own(self) -> None:
        hosts = cluster(*self.FULL, pod("web-bare", on="bare", app="web"), pod("db", on="n1", app="db"))
        mixed = pod_json(near=[term("zone", app="db")], apart=[self.ALONE])
        assert against_all(hosts, mixed) is None
        assert passing(hosts, mixed) == []

    def test_existing_pods_in_every_domain_keep_the_incoming_pod_away(self) -> None:
        hermits = [pod(f"hermit-{name}", on=name, apart=[self.ALONE]) for name in ("n1", "n2", "n3", "bare")]
        assert against_all(cluster(*hermits), pod_json(app="web")) is Reason.EXISTING_ANTI_AFFINITY
        assert against_all(cluster(*hermits[:3]), pod_json(app="web")) is None


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
