"""The directives `spread` at admission, and for pods that admission missed."""

from __future__ import annotations

import copy
from typing import Any

import orjson
import pytest

from extender.index.availability import DomainTable
from extender.index.policies import PolicyTable
from extender.model.constraints.labels import HOSTNAME, ZONE
from extender.model.constraints.spread import DomainRules
from extender.model.objects import Pod, TopologyDomains
from extender.model.policies import INJECTED_ANNOTATION, Policy, PolicyObject
from extender.settings.configuration import Settings
from extender.settings.limits import ConstraintLimits
from extender.settings.policies import Policies
from extender.verbs.admit.decision import AdmitVerb
from extender.verbs.effective_pod import PolicyCounts, effective_pod
from tests.builders import Json, index_of, read_pod, settings
from tests.policies import policy
from tests.verbs.admit.reviewing import KnownNamespaces, pod, reviewed, verb, workload

HASH = "pod-template-hash"
ENABLED = settings(policies={"enabled": True})
COMPLETING: Json = {"spread": [{"topologyKey": ZONE, "matchLabelKeys": "IfMissing"}]}


def constraint(key: str = ZONE, when: str = "DoNotSchedule", **fields: Any) -> Json:
    found: Json = {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": when}
    return found | {"labelSelector": {"matchLabels": {"app": "web"}}} | fields


def replica(*constraints: Json, owner: str = "ReplicaSet", labels: Json | None = None, **spec: Any) -> Json:
    """A pod as its controller creates it."""
    found = {"app": "web", HASH: "one", "controller-revision-hash": "two"} if labels is None else labels
    owners = [{"apiVersion": "apps/v1", "kind": owner, "name": "web", "uid": "o", "controller": True}]
    fields = spec | ({"topologySpreadConstraints": list(constraints)} if constraints else {})
    return pod(fields, uid="u", labels=found, ownerReferences=owners if owner else [])


def keys_of(body: Json) -> list[Any]:
    return [each.get("matchLabelKeys") for each in body["spec"]["topologySpreadConstraints"]]


def held(body: Json, *policies: Policy) -> Pod:
    """The effective pod of one that admission missed, or that it has completed."""
    return effective_pod(read_pod(body), index_of(*map(PolicyObject, policies)).view, ENABLED)


@pytest.mark.parametrize(
    ("owner", "key"),
    [("ReplicaSet", HASH), ("StatefulSet", "controller-revision-hash"), ("DaemonSet", "controller-revision-hash")],
)
def test_a_constraint_gets_the_label_key_that_the_controller_writes(owner: str, key: str) -> None:
    found = reviewed(verb(policy(**COMPLETING)), replica(constraint(), constraint(when="ScheduleAnyway"), owner=owner))
    assert keys_of(found.obj) == [[key], [key]]
    record = orjson.loads(found.obj["metadata"]["annotations"][INJECTED_ANNOTATION])[""]
    assert record["policies"][0]["spread"] == {ZONE: {"matchLabelKeys": [key]}}


@pytest.mark.parametrize(
    "body",
    [
        replica(constraint(), owner="Job"),
        replica(constraint(), owner=""),
        replica(constraint(), labels={"app": "web"}),
        replica(constraint(HOSTNAME)),
        replica(constraint(matchLabelKeys=[HASH])),
        replica(constraint(labelSelector={"matchLabels": {HASH: "one"}})),
        replica(constraint(labelSelector={"matchExpressions": [{"key": HASH, "operator": "Exists"}]})),
        replica(constraint(labelSelector=None)),
        workload(spec={"topologySpreadConstraints": [constraint()]}),
        workload("StatefulSet", spec={"topologySpreadConstraints": [constraint()]}),
    ],
    ids=[
        *("a Job", "no owner", "no such label", "another topology key", "has it already"),
        *("the selector has the key", "an expression has the key", "selects nothing", "a template", "another template"),
    ],
)
def test_a_constraint_stays_as_it_is(body: Json) -> None:
    assert reviewed(verb(policy(targets="Both", **COMPLETING)), body).patch == []


def test_keys_that_it_has_are_kept_in_front() -> None:
    found = reviewed(verb(policy(**COMPLETING)), replica(constraint(matchLabelKeys=["tier"])))
    assert keys_of(found.obj) == [["tier", HASH]]


@pytest.mark.parametrize("conflict", ["KeepPod", "Override", "Reject"])
@pytest.mark.parametrize("names", [("a", "b"), ("b", "a")], ids=["directive first", "constraint first"])
def test_a_constraint_of_a_policy_is_completed_too_and_the_next_review_changes_nothing(
    names: tuple[str, str], conflict: str
) -> None:
    policies = (
        policy(names[0], **COMPLETING),
        policy(names[1], topologySpreadConstraints=[constraint()], conflictPolicy=conflict),
    )
    first = reviewed(verb(*policies), replica())
    assert keys_of(first.obj) == [[HASH]]
    again = reviewed(verb(*policies), first.obj)
    assert (again.response["allowed"], again.patch, again.warnings) == (True, [], [])
    assert held(first.obj, *policies).signature.enforced is None, "the pod lacks nothing, and contradicts nothing"


def test_mode_audit_only_says_what_would_be_completed() -> None:
    found = reviewed(verb(policy(mode="Audit", **COMPLETING)), replica(constraint()))
    assert found.patch == []
    assert "spread" in found.response["auditAnnotations"]["audited"]


def test_a_limit_leaves_the_constraint_as_it_is_or_refuses_the_pod_by_the_failure_policy() -> None:
    full = replica(constraint(), constraint(HOSTNAME))
    few = ConstraintLimits(label_requirements=2)
    found = reviewed(verb(policy(**COMPLETING), limits=few), full)
    assert (keys_of(found.obj), "limits.labelRequirements" in found.warnings[0]) == ([None, None], True)
    assert reviewed(verb(policy(failurePolicy="Fail", **COMPLETING), limits=few), full).response["allowed"] is False


def test_a_forged_record_of_a_completion_is_not_believed() -> None:
    forged = replica(constraint())
    record = {"": {"policies": [{"policy": "ClusterPodSchedulingPolicy/p", "spread": {HOSTNAME: {"minDomains": 3}}}]}}
    forged["metadata"]["annotations"] = {INJECTED_ANNOTATION: orjson.dumps(record).decode()}
    found = reviewed(verb(policy("p", generation=0, **COMPLETING)), forged)
    assert HOSTNAME not in found.obj["metadata"]["annotations"][INJECTED_ANNOTATION]


def test_filter_counts_only_the_revision_for_a_pod_that_admission_missed() -> None:
    escaped = replica(constraint(), constraint(when="ScheduleAnyway"))
    injected = reviewed(verb(policy(**COMPLETING)), copy.deepcopy(escaped)).obj
    missed = held(escaped, policy(**COMPLETING))
    assert missed.signature.spread == read_pod(injected).signature.spread
    assert missed.signature.enforced is not None
    assert held(injected, policy(**COMPLETING)).signature.enforced is None


@pytest.mark.parametrize(("mode", "result"), [("Enforce", "missed"), ("Audit", "audited")])
def test_a_pod_that_admission_missed_is_counted(mode: str, result: str) -> None:
    view = index_of(PolicyObject(policy(mode=mode, **COMPLETING))).view
    escaped, counts = read_pod(replica(constraint())), PolicyCounts.new()
    found = effective_pod(escaped, view, ENABLED)
    counts.record(escaped, view)
    assert counts.counts["ClusterPodSchedulingPolicy", result] == 1
    assert (found is escaped) is (mode == "Audit")


DECLARING: Json = {"spread": [{"topologyKey": ZONE, "minDomains": "Declared"}]}


def declaring(count: int) -> DomainTable:
    index = index_of()
    index.upsert(TopologyDomains("zones", ZONE, tuple("abcdef"[:count])))
    return index.domains


def minima(body: Json) -> list[Any]:
    return [each.get("minDomains") for each in body["spec"]["topologySpreadConstraints"]]


def test_admission_writes_the_number_of_declared_domains_into_hard_constraints_without_one() -> None:
    body = replica(constraint(), constraint(when="ScheduleAnyway"), constraint(HOSTNAME))
    table = PolicyTable(Policies())
    table.replace([policy(**DECLARING)])
    admit = AdmitVerb(table, KnownNamespaces({"shop": {}}), Settings(policies=Policies()), domains=declaring(3))
    assert minima(reviewed(admit, body).obj) == [3, None, None]
    alone = AdmitVerb(table, KnownNamespaces({"shop": {}}), Settings(policies=Policies()), domains=declaring(1))
    assert reviewed(alone, body).patch == [], "minDomains 1 is what a constraint without the field has"
    own = replica(constraint(minDomains=2))
    assert reviewed(admit, own).patch == []
    assert minima(reviewed(verb(policy(spread=[{"topologyKey": ZONE, "minDomains": 4}])), body).obj) == [4, None, None]


def test_a_number_that_admission_wrote_does_not_count_as_the_pods_own_at_scheduling() -> None:
    injected = reviewed(verb(policy(spread=[{"topologyKey": ZONE, "minDomains": 4}])), replica(constraint())).obj
    (now,) = held(injected, policy(spread=[{"topologyKey": ZONE, "minDomains": 2}])).signature.spread.hard
    assert now.min_domains == 2
    (own,) = held(replica(constraint(minDomains=4)), policy(**DECLARING)).signature.spread.hard
    assert (own.min_domains, own.domains) == (4, None)


def test_the_first_policy_holds_for_each_field() -> None:
    first = policy("a", spread=[{"topologyKey": ZONE, "minDomains": 2, "unavailableDomains": "Exclude", "after": "1m"}])
    second = policy("b", spread=[{"topologyKey": ZONE, "minDomains": "Declared", "unavailableDomains": "Exclude"}])
    (found,) = held(replica(constraint()), first, second).signature.spread.hard
    assert (found.min_domains, found.domains) == (2, DomainRules(excludes_after=60.0))
    enforced = held(replica(constraint()), first, second).signature.enforced
    assert enforced is not None
    assert (enforced.policies, [str(each) for each in enforced.about_domains]) == ((), ["ClusterPodSchedulingPolicy/a"])
