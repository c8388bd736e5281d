"""What the effective pod costs: each node is matched once, and what is compiled goes with what needs it."""

from __future__ import annotations

from typing import Any

import orjson

from extender.model.objects import Namespace, Node
from extender.verbs.prioritize import prioritize_nodes
from extender.wire.objects.kinds import PODS
from tests.builders import asking, term
from tests.contenders import contender_json
from tests.index.counting import drop_all
from tests.policies import expression, node_term, policy, preferring, requiring
from tests.verbs.policed import NODES, Asker

ZONE_A_TERM = node_term(expression("zone", "In", "a"))
ZONE_A = requiring(ZONE_A_TERM)


class CountedLabels(dict[str, str]):
    """Labels of nodes that count how often any of them is read."""

    reads = 0

    def get(self, key: str, default: Any = None) -> Any:
        """As a dictionary does it."""
        CountedLabels.reads += 1
        return super().get(key, default)


def test_nodes_are_matched_with_a_policy_once_and_again_only_when_they_change() -> None:
    asker = Asker(policy("zonal", affinity=ZONE_A), policy("liked", affinity=preferring((5, ZONE_A_TERM))))
    for name in ("m1", "m2"):
        asker.index.upsert(Node(name, CountedLabels(zone="a")))

    def judged() -> tuple[list[str], dict[str, int], int]:
        CountedLabels.reads = 0
        args = asking(contender_json("asking"), "m1", "m2", "nb")
        passed = list(asker.verb.decide(args, 0).result.passed)
        scores = prioritize_nodes(args, asker.index.view, asker.settings)
        return passed, dict(scores), CountedLabels.reads

    passed, scores, reads = judged()
    assert (passed, scores) == (["m1", "m2"], {"m1": 10, "m2": 10, "nb": 0})
    assert reads > 0
    assert judged() == (passed, scores, 0)
    asker.index.upsert(Node("m2", CountedLabels(zone="b")))
    passed, scores, reads = judged()
    assert (passed, scores) == (["m1"], {"m1": 10, "m2": 0, "nb": 0})
    assert reads > 0
    assert judged() == (passed, scores, 0)
    asker.index.delete(Node("m1"))
    assert judged()[0] == []


def test_what_nodes_match_is_dropped_with_the_constraints_of_the_pod() -> None:
    asker = Asker(policy("zonal", affinity=ZONE_A), policy("liked", affinity=preferring((5, ZONE_A_TERM))))
    asker.passed()
    assert asker.index.topology.statistics()["node_matches"] == 1, "both policies name the same nodes"
    drop_all(asker.index)
    assert asker.index.topology.statistics()["node_matches"] == 0


def test_what_earlier_policies_made_of_pods_does_not_stay_compiled() -> None:
    """A group that is compiled costs every event of the pods that it counts."""
    asker = Asker()
    bodies = [contender_json(f"p{number}", app=f"a{number}") for number in range(8)]
    most = 0
    for generation in range(1, 21):
        asker.put(policy("zonal", nodeSelector={"zone": "abc"[generation % 3]}, generation=generation))
        for body in bodies:
            assert len(asker.passed(body)) == 1
        most = max(most, asker.index.statistics()["compiled_constraints"])
    assert most <= 2 * len(bodies)
    asker.index.upsert(Namespace("default", {"team": "a"}))
    for body in bodies:
        asker.passed(body)
    assert asker.index.statistics()["compiled_constraints"] == len(bodies)
    assert asker.index.topology.statistics()["node_matches"] == 1


def test_policies_are_selected_once_for_a_signature() -> None:
    asker = Asker(*(policy(f"p{number}", podSelector={"matchLabels": {"app": f"a{number}"}}) for number in range(200)))
    asker.passed()
    effective = asker.index.policies.effective
    ((signature, found),) = effective.items()
    assert found.signature is None
    assert asker.passed() == list(NODES)
    assert effective[signature] is found


def test_what_policies_add_does_not_count_in_the_budget_of_the_pods_namespace() -> None:
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term("host", app="other")]}}
    asker = Asker(policy("apart", affinity=apart))
    body = contender_json("asking", apart=[term("zone", app="own")])
    asker.index.upsert(PODS.decode_object(orjson.dumps(body)))
    assert asker.passed(body)
    use = asker.index.namespace_budgets.by_namespace["default"]
    assert use.amounts[:2] == (1, 1)
    asker.index.delete(gone := PODS.decode_object(orjson.dumps(body)))
    assert dict(asker.index.namespace_budgets.by_namespace) == {}
    asker.index.upsert(gone)  # its constraints may still be compiled
    assert asker.passed(body)
    assert asker.index.namespace_budgets.by_namespace["default"].amounts[:2] == (1, 1)
