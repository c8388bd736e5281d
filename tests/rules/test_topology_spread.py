"""Topology spread, hard and soft: examples of each part, and what the cases of tests/parity do not show."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest

from extender.index.cluster import ClusterIndex
from extender.model.constraints.spread import topology_weight
from extender.model.objects import Object
from extender.model.rejections import Reason, Rejection
from extender.rules.rule import MOST_BLAMED
from extender.rules.topology_spread import TopologySpread
from extender.settings.rules import Rules
from tests.builders import (
    Json,
    extender_args,
    index_of,
    matching,
    node,
    node_json,
    pod,
    pod_json,
    requirement,
    settings,
    spread,
    taint,
    workload,
)
from tests.deciding import filter_nodes
from tests.rules.judging import against_all, normalized, parts, passing, raw, reason

HARD = spread("zone", app="web")
BY_DEFAULT = {"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule"}
SKEWED = pod_json(app="web", spreads=[HARD])


def zones(*counts: int) -> list[Object]:
    """Zones z1, z2... of one node each (n1, n2...), with so many web pods."""
    made: list[Object] = []
    for number, count in enumerate(counts, start=1):
        made.append(node(f"n{number}", zone=f"z{number}"))
        made += [pod(f"web-{number}-{each}", on=f"n{number}", app="web") for each in range(count)]
    return made


def test_zones_that_only_nodes_of_the_request_are_in_are_domains_of_their_own() -> None:
    index = index_of(*zones(1, 1))
    brought = [node_json(f"new-{number}", zone=f"other-{number}") for number in range(3)]
    incoming = pod_json(app="web", spreads=[spread("zone", app="web")])
    result = filter_nodes(
        extender_args(incoming, nodes=[*brought, node_json("n1", zone="z1")]), index.view, settings(), 0
    )
    assert sorted(result.passed) == ["new-0", "new-1", "new-2"]


def test_the_weight_of_a_constraint_is_that_of_its_domains_and_over_host_names_of_the_nodes_asked_about() -> None:
    index = index_of(*zones(1, 1, 1))
    soft = [spread(key, app="web", hard=False) for key in ("zone", "host")]
    compiled = index.view.compiled(pod("asking", app="web", spreads=soft).signature)
    ranked = TopologySpread().ranked_groups(compiled, index.view, 40, Rules())
    assert ranked is not None
    assert [each.weight for each in ranked] == [-topology_weight(3), -topology_weight(40)]


def test_a_rejection_has_the_domain_its_count_what_it_is_measured_against_and_some_of_the_pods() -> None:
    found = parts(index_of(*zones(9, 2, 3)), SKEWED, "n1")
    assert found == Rejection(
        "PodTopologySpread",
        Reason.SPREAD_SKEW,
        topology_key="topology.kubernetes.io/zone",
        domain="z1",
        count=9,
        limit=2,
        minimum=2,
        max_skew=1,
        blamed=tuple(f"default/web-1-{number}" for number in range(MOST_BLAMED)),
    )
    assert found.text == "node(s) didn't match pod topology spread constraints"


def test_too_much_skew_in_every_domain_is_reported_without_a_look_at_any_node() -> None:
    """Only where it is certain: an earlier constraint and a node without the key have reasons of their own."""
    one = pod_json(app="web", spreads=[spread("zone", app="web", min_domains=3)])
    racked = [node(f"n{number}", zone=f"z{number}", labels={"rack": "r1"}) for number in (1, 2)]
    two = pod_json(app="web", spreads=[spread("rack", 9, app="web"), spread("zone", app="web", min_domains=3)])
    for objects, incoming, expected in (
        (zones(1, 1), one, Reason.SPREAD_SKEW),
        (zones(1, 0), one, None),
        (zones(1, 1, 1), one, None),
        ([*zones(1, 1), node("bare")], one, None),
        ([*zones(1, 1), *racked, node("bare", zone="z1")], two, None),
    ):
        assert against_all(index_of(*objects), incoming) is expected
    index = index_of(*zones(1, 1), *racked, node("bare", zone="z1"))
    assert reason(index, two, "bare") is Reason.SPREAD_LABEL_MISSING
    assert reason(index, two, "n1") is Reason.SPREAD_SKEW


OLD_AND_NEW = [pod("old", on="n1", app="web", hash="1"), pod("new", on="n2", app="web", hash="2")]
BY_HASH = spread("zone", match_label_keys=["hash"], app="web")
MERGED = spread("zone", match_label_keys=["hash"], app="web", hash="2")
THREE = spread("zone", min_domains=3, app="web")
GPU = [
    *(node("left-out", zone="z1", taints=[taint("gpu")]), node("alone", zone="z9", taints=[taint("gpu")])),
    pod("w", on="alone", app="web"),
]
# The web pods in zones z1, z2..., further objects, the constraint, labels of the incoming pod, and the nodes that pass.
PASSING: dict[str, tuple[tuple[int, ...], list[Any], Json, Json, str]] = {
    "empty zones": ((0, 0, 0), [], HARD, {}, "n1 n2 n3"),
    "one fuller zone": ((1, 0, 0), [], HARD, {}, "n2 n3"),
    "two fuller zones": ((1, 1, 0), [], HARD, {}, "n3"),
    "as full as the skew allows": ((2, 1, 1), [], HARD, {}, "n2 n3"),
    "maxSkew 2": ((3, 1, 2), [], spread("zone", 2, app="web"), {}, "n2 n3"),
    "equally full": ((5, 5, 5), [], HARD, {}, "n1 n2 n3"),
    # Pods that do not count.
    "in another namespace": ((0, 0), [pod("x", on="n1", namespace="other", app="web")], HARD, {}, "n1 n2"),
    "terminating": ((0, 0), [pod("x", on="n1", app="web", terminating=True)], HARD, {}, "n1 n2"),
    "finished": ((0, 0), [pod("x", on="n1", app="web", phase="Failed")], HARD, {}, "n1 n2"),
    "not assigned": ((0, 0), [pod("x", app="web")], HARD, {}, "n1 n2"),
    "on an unknown node": ((0, 0), [pod("x", on="ghost", app="web")], HARD, {}, "n1 n2"),
    "other labels": ((0, 0), [pod("x", on="n1", app="db")], HARD, {}, "n1 n2"),
    "matchLabelKeys: the old revision": ((0, 0), OLD_AND_NEW, BY_HASH, {"hash": "1"}, "n2"),
    "matchLabelKeys: the new revision": ((0, 0), OLD_AND_NEW, BY_HASH, {"hash": "2"}, "n1"),
    "matchLabelKeys: another revision": ((0, 0), OLD_AND_NEW, BY_HASH, {"hash": "3"}, "n1 n2"),
    # Since 1.34 the API server has merged the key into the selector as well, which changes nothing.
    "matchLabelKeys: merged at creation": ((0, 0), OLD_AND_NEW, MERGED, {"hash": "2"}, "n1"),
    # Below minDomains the minimum counts as 0.
    "minDomains: too few": ((1, 1), [], THREE, {}, ""),
    "minDomains: one is empty": ((1, 1, 0), [], THREE, {}, "n3"),
    "minDomains: enough": ((1, 1, 1), [], THREE, {}, "n1 n2 n3"),
    "minDomains: a node without the key": ((1, 1), [node("bare")], THREE, {}, ""),
    "minDomains: an empty zone of two": ((1, 0), [], THREE, {}, "n2"),
    # A node that a policy leaves out makes no domain; it is judged nevertheless.
    "nodes that are left out": ((2, 0), GPU, spread(taints_policy="Honor", app="web"), {}, "alone n2"),
}


@pytest.mark.parametrize(("counts", "objects", "constraint", "labels", "nodes"), PASSING.values(), ids=PASSING)
def test_fuller_domains_are_rejected(
    counts: tuple[int, ...], objects: list[Any], constraint: Json, labels: Json, nodes: str
) -> None:
    """The count with the pod placed, less the global minimum, may be maxSkew at most."""
    incoming = pod_json(spreads=[constraint], labels={"app": "web"} | labels)
    assert passing(index_of(*zones(*counts), *objects), incoming) == nodes.split()


def test_without_the_field_the_minimum_is_that_of_the_domains_that_are_there() -> None:
    """KEP-3022, feature enablement and rollback: disabled, the field is ignored; enabled again, it counts."""
    for is_on, passes in ((True, []), (False, ["n1", "n2"]), (True, [])):
        rules = settings(rules={"topologySpread": {"minDomains": is_on}}).rules
        assert passing(index_of(*zones(1, 1), rules=rules), pod_json(app="web", spreads=[THREE])) == passes


SOFT = pod_json(spreads=[spread(hard=False, app="web")])


def test_counts_are_weighted_by_the_number_of_domains() -> None:
    index = index_of(*zones(4, 1, 0))
    assert raw(index, SOFT) == [6, 2, 0]  # ln(3 + 2) = 1.609
    assert raw(index, SOFT, "n1", "n2") == [6, 1]  # ln(2 + 2) = 1.386


def soft(key: str = "zone", max_skew: int = 1, **fields: Any) -> Json:
    return spread(key, max_skew, hard=False, **{"app": "web"} | fields)


TAINTED = [node("n9", zone="z9", taints=[taint("gpu")]), pod("w", on="n9", app="web")]


@pytest.mark.parametrize(
    ("counts", "objects", "constraint", "app", "expected"),
    [
        # Fewer matching pods are better; the emptiest gets a hundred.
        ((4, 1, 0), [], soft(), "", [0, 66, 100]),
        ((2, 2), [], soft(), "", [100, 100]),
        ((0, 0), [], soft(), "", [100, 100]),
        # While pods are in fewer domains than minDomains, domains that may have one more are far ahead of all others.
        *(
            ((8, 2, 0), [], soft(min_domains=least), "web", expected)
            for least, expected in (
                *((None, [0, 76, 100]), (2, [0, 76, 100])),
                *((3, [0, 19, 100]), (4, [0, 19, 100])),
            )
        ),
        # A domain may have as many pods as maxSkew allows. A pod of another app makes no zone fuller.
        ((3, 2, 0), [], soft(max_skew=3, min_domains=4), "web", [7, 57, 100]),
        ((3, 2, 0), [], soft(max_skew=3, min_domains=4), "db", [28, 57, 100]),
        ((2, 1, 0), [], soft("host", min_domains=3), "web", [0, 8, 100]),
        # A pod on a node that does not count makes no domain.
        ((2, 0), TAINTED, soft(min_domains=2, taints_policy="Honor"), "web", [0, 100]),
    ],
)
def test_normalized_scores(
    counts: tuple[int, ...], objects: list[Any], constraint: Json, app: str, expected: list[int]
) -> None:
    incoming = pod_json(spreads=[constraint], labels={"app": app} if app else {})
    nodes = [f"n{at}" for at in range(1, len(counts) + 1)]
    assert normalized(index_of(*zones(*counts), *objects), incoming, *nodes) == expected


def plain_and_wished(counts: Sequence[int], max_skew: int, least: int = 3) -> tuple[list[int], list[int]]:
    """The scores of zones with so many pods, without minDomains and with it."""
    index = index_of(*zones(*counts))
    plain, wished = (
        normalized(index, pod_json(app="web", spreads=[spread("zone", max_skew, hard=False, min_domains=n, app="web")]))
        for n in (None, least)
    )
    return plain, wished


class TestMinDomainsOfSoftConstraints:
    """While pods are in fewer domains than minDomains, domains that may have one more are far ahead of all others."""

    def test_where_no_node_is_in_a_domain_that_would_help_scores_are_as_without(self) -> None:
        plain, wished = plain_and_wished((5, 2), 1)
        assert plain == wished

    def test_the_order_of_nodes_changes(self) -> None:
        """The empty zone has the node with most pods of the other constraint, which counts what the zone does not."""
        index = index_of(*zones(1, 1, 0), *(pod(f"db{at}", on="n3", tier="x", app="db") for at in range(2)))
        for min_domains, better in ((None, "n1"), (2, "n1"), (3, "n3")):
            by_host = spread("host", hard=False, selector={"matchExpressions": [requirement("tier", "Exists", [])]})
            spreads = [by_host, spread(hard=False, min_domains=min_domains, app="web")]
            found = normalized(index, pod_json(app="web", spreads=spreads))
            assert ("n1", "n2", "n3")[found.index(max(found))] == better

    def test_a_domain_that_helps_gains_on_all_others_and_loses_on_none(self) -> None:
        """All zones of up to six pods. Doubled raw scores added 6 points at most, none with maxSkew 1, and took some away."""
        gained: dict[int, list[int]] = {1: [], 2: [], 3: []}
        for max_skew, *counts in product(gained, *[range(7)] * 3):
            plain, wished = plain_and_wished(counts, max_skew)
            if 0 not in counts:
                assert wished == plain
                continue
            for one, other in product(range(3), repeat=2):
                if counts[one] < max_skew:
                    gain = wished[one] - wished[other] - plain[one] + plain[other]
                    assert gain >= 0
                    assert gain == 0 or counts[other] >= max_skew
                    gained[max_skew].append(gain)
        assert {max_skew: max(found) for max_skew, found in gained.items()} == {1: 60, 2: 54, 3: 44}


SERVICES = [workload("Service", "a", {"app": "web"}), workload("Service", "b", {"tier": "x"})]
OWNER = workload("ReplicaSet", "rs", matching(hash="1"))
OWNED: Json = {"tier": "x", "hash": "1", "owner": ("ReplicaSet", "rs")}


class TestDefaults:
    """Constraints for pods that bring none, over the pods that their Services and owner select."""

    @pytest.mark.parametrize(
        ("labels", "objects", "expected"),
        [
            ({}, [], "n1 n2"),
            ({}, [workload("Service", "s", {"app": "web"})], "n2"),
            ({}, [workload("Service", "s", {"app": "db"})], "n1 n2"),
            ({}, [workload("Service", "s", {"app": "web"}, namespace="other")], "n1 n2"),
            ({}, [workload("Service", "s", None)], "n1 n2"),
            ({}, [workload("Service", "s", {})], "n1 n2"),
            (OWNED, SERVICES, "n1 n2"),
            (OWNED, [*SERVICES, OWNER, pod("peer", on="n1", app="web", tier="x", hash="1")], "n2"),
            (OWNED, [*SERVICES, OWNER, pod("peer", on="n1", app="web", tier="x", hash="2")], "n1 n2"),
        ],
        ids=[
            *("no Service or owner", "a Service that selects it", "selects others", "another namespace", "no selector"),
            *("an empty selector", "several Services", "several and an owner, a peer", "a pod of another revision"),
        ],
    )
    def test_the_selectors_of_all_services_and_of_the_owner_are_anded(
        self, labels: Json, objects: list[Any], expected: str
    ) -> None:
        by_list = {"topologySpread": {"defaultingType": "List", "defaultConstraints": [BY_DEFAULT]}}
        index = index_of(*zones(1, 0), *objects, rules=settings(rules=by_list).rules)
        assert passing(index, pod_json(app="web", **labels)) == expected.split()

    @pytest.mark.parametrize(
        ("changes", "expected"),
        [({}, ["n2"]), ({"maxSkew": 2}, ["n1", "n2"]), ({"minDomains": 3}, ["n2"])],
        ids=["as it is", "a larger skew", "more domains than there are"],
    )
    def test_their_fields_mean_what_those_of_a_pod_do(self, changes: Json, expected: list[str]) -> None:
        assert self.with_list(BY_DEFAULT | changes, *zones(1, 0)) == expected

    def test_the_least_number_of_domains_is_one_where_none_is_given(self) -> None:
        only = zones(1)
        assert self.with_list(BY_DEFAULT, *only) == ["n1"]
        assert self.with_list(BY_DEFAULT | {"minDomains": 2}, *only) == []

    @pytest.mark.parametrize(("policy", "expected"), [("Ignore", []), ("Honor", ["n1"])])
    def test_their_policies_leave_nodes_out_of_the_counting(self, policy: str, expected: list[str]) -> None:
        there = zones(1)
        by_taint = self.with_list(BY_DEFAULT | {"nodeTaintsPolicy": policy}, *there, node("n9", zone="z9", taints=[taint("gpu")]))  # fmt: skip
        assert [name for name in by_taint if name != "n9"] == expected
        chosen = {"kubernetes.io/hostname": "n1"}
        by_affinity = self.with_list(
            BY_DEFAULT | {"nodeAffinityPolicy": policy}, *there, node("n9", zone="z9"), node_selector=chosen
        )
        assert [name for name in by_affinity if name != "n9"] == expected

    def with_list(self, constraint: Json, *objects: Object, **fields: Any) -> list[str]:
        """The nodes for a web pod of a Service, under a list of this one constraint."""
        by_list = {"topologySpread": {"defaultingType": "List", "defaultConstraints": [constraint]}}
        service = workload("Service", "s", {"app": "web"})
        return passing(index_of(*objects, service, rules=settings(rules=by_list).rules), pod_json(app="web", **fields))

    def test_the_system_s_defaults_score_over_hostname_and_zone(self) -> None:
        index = index_of(*zones(2, 0), node("bare"), workload("Service", "s", {"app": "web"}))
        # Two pods weigh ln(3 + 2) by host and, with the node that has no zone as one more value, ln(3 + 2) by zone.
        assert raw(index, pod_json(app="web"), "n1", "n2", "bare") == [12, 6, 2]

    def test_an_empty_zone_and_no_zone_are_one_domain_of_the_system_s_defaults(self) -> None:
        blank, bare = node("blank", labels={"topology.kubernetes.io/zone": ""}), node("bare")
        others = [pod("a", on="blank", app="web"), *(pod(name, on="bare", app="web") for name in "bcdefg")]
        index = index_of(*zones(2), blank, bare, *others, workload("Service", "s", {"app": "web"}))
        # By zone ln(2 + 2) for each of two pods in z1 and of seven in "", which blank has and bare has not.
        assert raw(index, pod_json(app="web"), "n1", "blank", "bare") == [12, 17, 12]


def test_a_constraint_is_about_the_cluster_as_it_is_now() -> None:
    index: ClusterIndex = index_of(*zones(1, 0))
    assert passing(index, SKEWED) == ["n2"]
    index.upsert(pod("web-2", on="n2", app="web"))
    assert passing(index, SKEWED) == ["n1", "n2"]
    index.upsert(node("n3", zone="z3"))
    assert passing(index, SKEWED) == ["n3"]
    index.upsert(node("n3", zone="z2"))
    assert passing(index, SKEWED) == ["n1", "n2", "n3"]
