"""The note of an event on a rejected pod: which rule, which domains with which counts, and who is to blame."""

from __future__ import annotations

from typing import Any

import pytest

from extender.model.answers.explanations import Explanation, Obstacle
from extender.model.objects import Object, Pod
from extender.settings.configuration import Settings
from extender.verbs.explain.explaining import MOST_BYTES, explain, rejection_note
from tests.builders import index_of, node, pod, spread, term
from tests.explaining import finished
from tests.quotas import Tenants, limited, reaching

ROOM = {"cpu": "9", "pods": "9"}
ZONES = [node(f"n{at}", zone=f"z{at % 2}", allocatable=ROOM) for at in range(4)]
APART: dict[str, Any] = {"app": "web", "apart": [term("zone", app="web")]}


def found(incoming: Pod, *objects: Object) -> Explanation:
    return finished(explain(incoming, index_of(*objects).view, Settings(), offers_changes=False))


def note(incoming: Pod, *objects: Object) -> str:
    return rejection_note(found(incoming, *objects))


@pytest.mark.parametrize(
    ("incoming", "placed", "expected"),
    [
        (
            pod("asking", **APART),
            [pod("web-0", on="n0", app="web"), pod("web-1", on="n1", app="web"), pod("web-2", on="n3", app="web")],
            (
                "pod anti-affinity by topology.kubernetes.io/zone with pods app=web: z1: 2 counted, 0 would pass (because of default/web-1, "
                "default/web-2), z0: 1 counted, 0 would pass (because of default/web-0)"
            ),
        ),
        (
            pod("asking", app="web", near=[term("zone", app="cache")]),
            [],
            "pod affinity by topology.kubernetes.io/zone with pods app=cache: z0: no such pod, z1: no such pod",
        ),
        (
            pod("asking", app="web"),
            [pod("lonely-0", on="n0", **APART), pod("lonely-1", on="n1", **APART)],
            (
                "anti-affinity of existing pods by topology.kubernetes.io/zone, of default/lonely-0 for example: z0: 1 counted, 0 would pass "
                "(because of default/lonely-0), z1: 1 counted, 0 would pass (because of default/lonely-1)"
            ),
        ),
        (
            pod("asking", app="web", spreads=[spread("zone", app="web", min_domains=3)]),
            [pod("web-0", on="n0", app="web"), pod("web-1", on="n1", app="web")],
            (
                "topology spread by topology.kubernetes.io/zone (maxSkew 1, minimum 0 of 2 domains) with pods app=web: z0: 1 counted, 0 would pass "
                "(because of default/web-0), z1: 1 counted, 0 would pass (because of default/web-1)"
            ),
        ),
    ],
    ids=["anti-affinity", "affinity", "existing", "spread"],
)
def test_a_constraint_is_told_with_its_domains_their_counts_and_the_pods(
    incoming: Pod, placed: list[Pod], expected: str
) -> None:
    assert note(incoming, *ZONES, *placed) == expected


def test_a_rule_without_domains_is_told_with_what_is_to_blame() -> None:
    tenants = Tenants(limited(1), reaching("bound", on="n1"))
    steps = explain(reaching("asking"), tenants.index.view, tenants.settings, offers_changes=False)
    text = rejection_note(finished(steps))
    assert text.startswith(
        "CrossNamespaceQuota: namespace team: quota cross (CrossNamespacePodAffinity) limits pods to 1"
    )
    assert "(because of team/cross" in text


def test_objects_of_other_namespaces_are_counted_and_not_named() -> None:
    """Whoever may read the events of a namespace need not be allowed to read another."""
    far = term("zone", namespaces=["default", "secret"], app="web")
    placed = [pod("mine", on="n0", app="web"), pod("theirs", namespace="secret", on="n0", app="web")]
    placed += [pod("hidden", namespace="secret", on="n1", app="web")]
    text = note(pod("asking", apart=[far]), *ZONES, *placed)
    assert "z0: 2 counted, 0 would pass (because of default/mine and 1 more)" in text
    assert "z1: 1 counted, 0 would pass (because of a pod of another namespace)" in text
    carried = [pod(f"on-{name}", namespace="secret", on=name, apart=[far]) for name in ("n0", "n1")]
    text = note(pod("asking", app="web"), *ZONES, *carried)
    assert ", of a pod of another namespace for example: z0: 1 counted" in text
    assert "secret" not in text


@pytest.mark.parametrize(
    ("blamed", "expected"),
    [
        (("nvidia.com/gpu", "secret/one"), "nvidia.com/gpu and 1 more"),
        (("secret/one", "secret/two"), "objects of other namespaces"),
        (("ClusterPodSchedulingPolicy/zonal",), "ClusterPodSchedulingPolicy/zonal"),
        (("default/one",), "default/one"),
    ],
)
def test_what_is_to_blame_is_named_where_the_namespace_may_know_it(blamed: tuple[str, ...], expected: str) -> None:
    obstacle = Obstacle(rule="ReservedRoom", reason="reserved", text="reserved", examples=("n1",), blamed=blamed)
    known = Explanation(pod="default/asking", state="pending", nodes=1, passing=0, fitting=0, obstacles=(obstacle,))
    assert rejection_note(known) == f"ReservedRoom: reserved (because of {expected}), on n1"


def test_a_limit_that_the_text_names_is_not_named_again() -> None:
    text = "17 topology keys, limits.topologyKeys is 16"
    obstacle = Obstacle("Limits", "over_limit", text, 1, ("n1",), blamed=("topologyKeys",))
    known = Explanation(pod="default/asking", state="pending", nodes=1, passing=0, fitting=0, obstacles=(obstacle,))
    assert rejection_note(known) == f"Limits: {text}, on n1"


def test_what_the_scheduler_rejects_by_itself_is_told_beside_it() -> None:
    full = [node(f"n{at}", zone="z0", allocatable={"cpu": "1", "pods": "9"}) for at in range(5)]
    text = note(pod("asking", requests={"cpu": "2"}, **APART), *full, pod("web-0", on="n0", app="web"))
    assert text.endswith(
        "; NodeFit: node(s) had too few resources left (because of cpu), 2000m needed and 1000m left at most, "
        "on n0, n1, n2 and 2 more"
    )


def test_a_single_node_lacks_the_label() -> None:
    asking = pod("asking", near=[term("zone", app="web")])
    assert note(asking, node("n0", zone="z0", allocatable=ROOM), node("bare", allocatable=ROOM)).endswith(
        "1 node lacks the label"
    )


def test_where_a_node_passes_there_is_nothing_to_tell() -> None:
    assert note(pod("asking", **APART), *ZONES) == ""


def test_many_domains_are_counted_and_a_long_note_ends_with_a_whole_part() -> None:
    nodes = [node(f"n{at}", zone=f"z{at:02}", allocatable=ROOM) for at in range(30)]
    placed = [pod(f"web-{at:02}", on=f"n{at}", app="web") for at in range(30)]
    text = note(pod("asking", **APART), *nodes, *placed)
    assert text.endswith("z03: 1 counted, 0 would pass (because of default/web-03), at least 16 more domains")
    assert note(pod("asking", **APART), *nodes[:5], *placed[:5]).endswith(", 1 more domain")
    keys: dict[str, Any] = {f"label-{number}": "x" * 60 for number in range(9)}
    many = pod("asking", apart=[term("zone", **{key: value}) for key, value in keys.items()])
    text = note(many, *nodes[:2], pod("a", on="n0", **keys), pod("b", on="n1", **keys))
    assert len(text.encode()) <= MOST_BYTES
    assert text.endswith("z01: 1 counted, 0 would pass (because of default/b); and 6 more")


def test_a_long_selector_leaves_room_for_the_domains() -> None:
    near = [term("zone", app=f"{'w' * 60}{number}") for number in range(9)]
    assert note(pod("asking", near=near), *ZONES).endswith("www…: z0: no such pod, z1: no such pod")


def test_one_long_part_is_cut_between_characters() -> None:
    lonely = [pod(f"{'x' * 200}-{at}", on=f"n{at % 4}", **APART) for at in range(16)]
    text = note(pod("asking", **APART), *ZONES, *lonely)
    assert MOST_BYTES - 40 < len(text.encode()) <= MOST_BYTES
