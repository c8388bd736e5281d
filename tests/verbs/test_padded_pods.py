"""A tenant pads a pod up to or above a limit: the filter holds it to what the platform's policies say about nodes."""

from __future__ import annotations

from typing import Any

import pytest

from extender.model.objects import Namespace
from extender.model.rejections import Reason
from tests.builders import Json, matching, term
from tests.contenders import contender_json
from tests.policies import REQUIRED, expression, node_term, policy, preferring, requiring
from tests.verbs.policed import NODES, Asker, AugmentedAsker, with_spec

ZONES = requiring(node_term(expression("zone", "In", "a")), node_term(expression("zone", "In", "b")))


def terms(count: int) -> list[Json]:
    """Node terms that every node matches."""
    return [
        node_term(expression("zone", "Exists"), expression(f"k{number}", "DoesNotExist")) for number in range(count)
    ]


AT_A_LIMIT: dict[str, Json] = {
    "nodeRequirements": {"affinity": requiring(node_term(*(expression(f"k{n}", "DoesNotExist") for n in range(200))))},
    "maxTerms": {"affinity": requiring(*terms(64))},
    "nodeSelectorTerms": {"affinity": preferring(*((1, each) for each in terms(100)))},
    "tolerations": {"tolerations": [{"key": f"k{number}", "operator": "Exists"} for number in range(100)]},
}  # fmt: skip


@pytest.mark.parametrize("asker", [Asker, AugmentedAsker])
@pytest.mark.parametrize("spec", AT_A_LIMIT.values(), ids=AT_A_LIMIT)
def test_a_pod_at_a_limit_is_held_to_what_the_platform_says_about_nodes(spec: Json, asker: type[Asker]) -> None:
    held = asker(policy("zonal", affinity=ZONES, nodeSelector={"zone": "b"}, conflictPolicy="Override"))
    assert held.passed(with_spec(**spec)) == ["nb"]
    assert asker(policy("zonal", affinity=ZONES)).passed(with_spec(**spec)) == ["na", "nb"]


BIG = {"podAntiAffinity": {REQUIRED: [term("zone", app="x" * 60, number=str(n)) for n in range(600)]}}
ABOVE_A_LIMIT: dict[str, Json] = {
    "tolerations": {"tolerations": [{"key": f"k{number}", "operator": "Exists"} for number in range(101)]},
    "nodeRequirements": {"affinity": requiring(*terms(101))},
    "affinityTerms": {"affinity": {"podAntiAffinity": {REQUIRED: [term("zone", app=f"a{n}") for n in range(101)]}}},
    "podBytes": {"affinity": BIG},
}


@pytest.mark.parametrize("spec", ABOVE_A_LIMIT.values(), ids=ABOVE_A_LIMIT)
def test_in_augment_mode_a_pod_above_a_limit_is_held_to_what_selects_nodes(spec: Json) -> None:
    chosen: Json = {"podSelector": matching(app="web"), "matchConditions": {"ownerKinds": ["Job"]}}
    asker = AugmentedAsker(
        policy("zonal", affinity=ZONES, **chosen),
        policy("pinned", nodeName="nb", **chosen),
        policy("other", nodeSelector={"zone": "c"}, podSelector=matching(app="db")),
    )
    body = contender_json("asking", app="web", owner=("Job", "batch"))
    body["spec"] |= spec
    assert asker.passed(body) == ["nb"]
    assert asker.passed(contender_json("asking") | {"spec": {"containers": [], **spec}}) == list(NODES)


def test_labels_that_are_too_large_to_be_read_hide_a_pod_from_no_policy() -> None:
    """Any policy that selects pods of its namespace might select it."""
    asker = AugmentedAsker(
        policy("zonal", nodeSelector={"zone": "a"}, podSelector=matching(app="web")),
        policy("far", "bank", nodeSelector={"zone": "b"}),
    )
    labels = {"app": "web", **{f"{'k' * 50}{number}": "v" * 50 for number in range(700)}}
    assert asker.passed(contender_json("asking", labels=labels)) == ["na"]
    asker.put(policy("zonal", nodeSelector={"zone": "c"}, podSelector=matching(app="web")))
    assert asker.passed(contender_json("asking", labels=labels)) == ["nc"]
    assert asker.passed(contender_json("asking", namespace="kube-system", labels=labels)) == list(NODES)


@pytest.mark.parametrize(("failure_policy", "passed"), [("Fail", []), ("Ignore", list(NODES))])
def test_what_a_limit_keeps_out_is_a_failure_of_the_policy(failure_policy: str, passed: list[str]) -> None:
    apart = {"podAntiAffinity": {REQUIRED: [term("zone", app="db")]}}
    for asker, spec in (
        (Asker(policy("apart", affinity=apart, failurePolicy=failure_policy), limits={"affinityTerms": 2}), 2),
        (AugmentedAsker(policy("apart", affinity=apart, failurePolicy=failure_policy), limits={"affinityTerms": 2}), 3),
    ):
        own: Any = {"podAntiAffinity": {REQUIRED: [term("zone", app=f"a{number}") for number in range(spec)]}}
        result = asker.ask(with_spec(affinity=own)).result
        assert list(result.passed) == passed
        assert result.reasons == (frozenset() if passed else {Reason.POLICY_FAILED})


def test_policies_of_a_namespace_do_not_use_up_the_budget_of_the_platform() -> None:
    many = [
        policy(f"t{number}", "default", priority=9, affinity=preferring(*((1, each) for each in terms(95))))
        for number in range(220)
    ]
    assert Asker(policy("zonal", nodeSelector={"zone": "b"}, failurePolicy="Fail"), *many).passed() == ["nb"]


@pytest.mark.parametrize(("failure_policy", "passed"), [("Fail", []), ("Ignore", list(NODES))])
def test_a_pod_of_a_namespace_that_is_not_known_yet(failure_policy: str, passed: list[str]) -> None:
    tenants: Json = {"namespaceSelector": matching(tenant="yes"), "failurePolicy": failure_policy}
    asker = Asker(policy("zonal", nodeSelector={"zone": "a"}, **tenants))
    body = contender_json("asking", namespace="new")
    assert asker.passed(body) == passed
    asker.index.upsert(Namespace("new", {"tenant": "yes"}))
    assert asker.passed(body) == ["na"]
