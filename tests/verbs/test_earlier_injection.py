"""What an earlier version of a policy injected into a pod is no wish of the user: the version of today is judged without it."""

from __future__ import annotations

import copy
from typing import Any

import orjson
import pytest

from extender.model.policies import CLUSTER_KIND, Policy
from extender.model.rejections import Reason
from extender.verbs.effective_pod import MISSED, effective_pod
from extender.verbs.select_host import find_node_elsewhere
from tests.builders import Json, asking
from tests.contenders import contender, contender_json
from tests.policies import expression, node_term, policy, requiring
from tests.verbs.admit.reviewing import ask, verb
from tests.verbs.policed import NODES, Asker, with_spec

WAYS = ("KeepPod", "Override", "Reject")
ANNOTATION = "placement.extender.dev/injected"


def injected(body: Json, *policies: Policy) -> Json:
    """The pod after the webhook has injected policies."""
    answer = ask(verb(*policies), copy.deepcopy(body))
    assert answer.response["allowed"]
    made: Json = answer.obj
    return made


def zone(*values: str) -> Json:
    """A required node affinity."""
    return requiring(node_term(expression("zone", "In", *values)))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"nodeSelector": {"zone": "a"}}, {"nodeSelector": {"zone": "b"}}),
        ({"affinity": zone("a")}, {"affinity": zone("b")}),
        ({"affinity": zone("a")}, {"nodeSelector": {"zone": "b"}}),
        ({"nodeSelector": {"zone": "a"}}, {"affinity": zone("b")}),
    ],
    ids=["selector", "terms", "terms, then selector", "selector, then terms"],
)
def test_a_new_version_holds_against_what_the_old_one_injected(before: Json, after: Json, way: str) -> None:
    """The pod carries zone a, so kube-scheduler leaves it no node of zone b: it is pending until it is made anew."""
    body = injected(contender_json("asking"), policy("zonal", **before))
    asker = Asker(policy("zonal", generation=2, conflictPolicy=way, **after))
    assert asker.passed(body) == ["nb"]
    assert asker.verb.policies.counts[CLUSTER_KIND, MISSED] == 1
    assert find_node_elsewhere(asking(body, *NODES).pod, asker.index.view, asker.settings, 0) == ("", True)
    result = asker.verb.decide(asking(body, "na"), 0).result
    assert result.reasons == {Reason.POLICY}, "it is not refused for a conflict"


@pytest.mark.parametrize(("way", "passed"), [("KeepPod", list(NODES)), ("Override", ["nb"]), ("Reject", [])])
def test_what_the_user_wrote_is_judged_as_before(way: str, passed: list[str]) -> None:
    body = injected(with_spec(nodeSelector={"zone": "a"}), policy("other", nodeSelector={"disk": "ssd"}))
    asker = Asker(policy("zonal", generation=2, conflictPolicy=way, nodeSelector={"zone": "b"}))
    assert asker.passed(body) == passed


def test_each_key_is_judged_by_itself() -> None:
    """Zone a was injected, and the disk is the user's."""
    body = injected(with_spec(nodeSelector={"disk": "hdd"}), policy("zonal", nodeSelector={"zone": "a"}))
    asker = Asker(policy("zonal", generation=2, nodeSelector={"zone": "b", "disk": "ssd"}))
    enforced = effective_pod(asking(body).pod, asker.index.view, asker.settings).signature.enforced
    assert enforced is not None
    assert enforced.nodes.node_selector == (("disk", "hdd"), ("zone", "b"))


def test_a_deleted_policy_leaves_no_wish_of_the_user_behind() -> None:
    body = injected(contender_json("asking"), policy("deleted", nodeSelector={"zone": "a"}))
    assert Asker(policy("zonal", nodeSelector={"zone": "b"})).passed(body) == ["nb"]


def test_what_was_overridden_is_not_required_again() -> None:
    """The user's disk is not in the pod any more, so nothing can hold the pod to it."""
    body = with_spec(nodeSelector={"disk": "hdd", "zone": "a"})
    body = injected(body, policy("p", nodeSelector={"disk": "ssd", "zone": "b"}, conflictPolicy="Override"))
    asker = Asker(policy("p", generation=2, nodeSelector={"zone": "c"}))
    assert asker.passed(body) == ["nc"]


@pytest.mark.parametrize("way", WAYS)
def test_a_new_spread_constraint_holds_against_the_old_one(way: str) -> None:
    def evenly(skew: int) -> Json:
        selector = {"matchLabels": {"app": "web"}}
        fields: Json = {"topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}
        return {"topologySpreadConstraints": [fields | {"maxSkew": skew}]}

    body = injected(contender_json("asking", app="web"), policy("even", **evenly(5)))
    asker = Asker(policy("even", generation=2, conflictPolicy=way, **evenly(1)))
    asker.index.upsert(contender("web-1", on="na", app="web"))
    assert asker.passed(body) == ["nb", "nc"]
    for number in range(2, 7):
        asker.index.upsert(contender(f"web-{number}", on="na", app="web"))
    for name in ("nb", "nc"):
        asker.index.upsert(contender(f"web-{name}", on=name, app="web"))
    assert asker.passed(body) == ["nb", "nc"], "what it carries stays, too"


@pytest.mark.parametrize("way", WAYS[:2])
def test_a_pod_that_todays_policies_injected_lacks_nothing(way: str) -> None:
    """Also where it kept a value of its own, or lost one."""
    today = policy("zonal", conflictPolicy=way, nodeSelector={"zone": "a", "disk": "ssd"}, affinity=zone("a", "b"))
    body = injected(with_spec(nodeSelector={"disk": "hdd"}), today)
    asker = Asker(today)
    assert asker.passed(body) == list(NODES), "the rest is left to kube-scheduler"
    assert asker.verb.policies.counts.total() == 0


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"": 1}', '{"": {"policies": [{"policy": "x", "lists": {"topologySpreadConstraints": [{"a": []}]}}]}}',
     '{"": {"terms": {"before": [1], "after": [[0, {"matchExpressions": [7]}]]}}}',
     '{"": {"terms": {"after": [' + ",".join(["[-1, {}]"] * 1000) + "]}}}"],
    ids=["empty", "cut", "list", "number", "spread", "terms", "many"],
)  # fmt: skip
def test_a_record_that_is_no_record_changes_nothing(text: str) -> None:
    body: dict[str, Any] = with_spec(nodeSelector={"zone": "a"})
    body["metadata"]["annotations"] = {ANNOTATION: text}
    asker = Asker(policy("zonal", nodeSelector={"zone": "b"}))
    assert asker.passed(body) == list(NODES)


def test_a_record_cannot_free_a_pod_of_a_policy() -> None:
    """A forged record says that the pod's own value was injected; the pod is held to the policy all the same."""
    body: dict[str, Any] = with_spec(nodeSelector={"zone": "a"})
    record = {"": {"policies": [{"policy": "x", "nodeSelector": {"zone": "a"}, "wasNodeSelector": {"zone": "c"}}]}}
    body["metadata"]["annotations"] = {ANNOTATION: orjson.dumps(record).decode()}
    assert Asker(policy("zonal", nodeSelector={"zone": "b"})).passed(body) == ["nb"]
