"""Quotas for pods with affinity across namespaces, counted when pods are placed: never one over, never one rejected below."""

from __future__ import annotations

from typing import Any

import pytest

from extender.features.quotas.rule import AUDITED, REJECTED
from extender.index.audit import audit
from extender.index.claims.assumed import AssumptionTimeouts
from extender.model.rejections import Reason
from tests.builders import Json, namespace, term, weighted
from tests.features.quotas.tenants import SCOPE, Tenants, limited, quota, quotas_of, reaching, reaching_json

PLAIN: list[Json] = [term("zone", app="db")]


async def test_two_requests_in_a_row_with_one_place_left_let_one_pod_pass() -> None:
    tenants = Tenants(limited(2), reaching("bound", on="n1"))
    assert [await tenants.passes("a"), await tenants.passes("b")] == [True, False]
    assert audit(tenants.index) == []


async def test_a_rejection_names_namespace_quota_limit_and_usage() -> None:
    tenants = Tenants(limited(1), reaching("bound", on="n1"))
    assert await tenants.text("a") == (
        "namespace team: quota cross (CrossNamespacePodAffinity) limits pods to 1, 1 used, 1 requested"
    )


async def test_pods_wait_while_their_namespace_has_more_quotas_than_the_setting_allows() -> None:
    tenants = Tenants(*(limited(5, name=f"q{at}") for at in range(2)), reaching("bound", on="n1"), maxPerNamespace=2)
    assert await tenants.passes("a")
    tenants.put(limited(1, name="q2"))
    assert await tenants.text("b") == (
        "namespace team: 3 quotas of scope CrossNamespacePodAffinity, quota.maxPerNamespace is 2"
    )
    assert await tenants.passes("elsewhere", namespace="other")
    tenants.put(reaching("more", on="n2"))
    assert audit(tenants.index) == []
    tenants.index.delete(limited(5, name="q1"))
    assert audit(tenants.index) == []
    assert await tenants.text("b") == (
        "namespace team: quota q2 (CrossNamespacePodAffinity) limits pods to 1, 3 used, 1 requested"
    )


@pytest.mark.parametrize("name", ["pods", "count/pods", "cpu", "requests.cpu", "limits.cpu", "requests.x.io/a"])
async def test_a_limit_holds_also_in_a_quota_of_hundreds_of_limits(name: str) -> None:
    amounts = {"requests": {"cpu": "1", "x.io/a": "1"}, "limits": {"cpu": "1", "x.io/a": "1"}}
    spec = {"containers": [{"name": "c", "image": "i", "resources": amounts}]}
    others = {f"requests.x.io/other-{at}": "0" for at in range(300)}
    tenants = Tenants(quota(hard=others | {name: "1"}))
    assert [await tenants.passes(each, spec=spec) for each in ("a", "b")] == [True, False]
    assert audit(tenants.index) == []


async def test_a_quota_of_zero_forbids_and_other_pods_pass() -> None:
    tenants = Tenants(limited(0))
    assert not await tenants.passes("a")
    assert await tenants.passes("plain", apart=PLAIN)
    assert await tenants.passes("elsewhere", namespace="other")


async def test_a_pod_that_is_requested_again_takes_no_second_place() -> None:
    tenants = Tenants(limited(1))
    assert [await tenants.passes("a") for _ in range(3)] == [True, True, True]
    assert not await tenants.passes("b")


async def test_a_binding_takes_the_place_that_was_assumed() -> None:
    tenants = Tenants(limited(2))
    assert await tenants.passes("a")
    before = tenants.version("late")
    tenants.put(reaching("a", on="n2"))
    assert tenants.version("late") == before
    assert [await tenants.passes("b"), await tenants.passes("c")] == [True, False]


@pytest.mark.parametrize("how", ["reported", "expired", "deleted", "finished"])
async def test_a_pod_that_is_not_placed_after_all_gives_its_place_back(how: str) -> None:
    tenants = Tenants(limited(1))
    assert await tenants.passes("a")
    assert not await tenants.passes("b")
    before = tenants.version("b")
    match how:
        case "reported":
            tenants.index.assumed.forget("uid-a")
        case "expired":
            tenants.index.assumed.review(1e6, AssumptionTimeouts(expiry=1, failure_grace=1))
        case "deleted":
            tenants.index.delete(reaching("a"))
        case "finished":
            tenants.put(reaching("a", on="n1"), reaching("a", on="n1", phase="Succeeded"))
    assert tenants.version("b") != before
    assert await tenants.passes("b")
    assert audit(tenants.index) == []


async def test_a_terminating_pod_counts_until_it_is_gone_as_its_terms_do() -> None:
    tenants = Tenants(limited(1), reaching("leaving", on="n1", terminating=True))
    assert not await tenants.passes("a")
    tenants.index.delete(reaching("leaving", on="n1", terminating=True))
    assert await tenants.passes("a")


async def test_a_pod_for_which_pods_are_preempted_keeps_its_place() -> None:
    """Else its victims would be deleted for nothing, once another pod has taken the last place."""
    tenants = Tenants(limited(1), reaching("preemptor"))
    tenants.index.nominate_in_memory(tenants.index.pods["uid-preemptor"], "n1", ["victim"])
    assert not await tenants.passes("a")
    assert audit(tenants.index) == []
    before = tenants.version("a")
    assert await tenants.passes("preemptor")
    tenants.put(reaching("preemptor", on="n1"))
    tenants.index.end_nomination("uid-preemptor")
    assert (tenants.version("a"), await tenants.passes("a")) == (before, False)


async def test_where_pending_pods_count_the_oldest_are_placed() -> None:
    """All of them count from their creation, and none blocks an older one: else no pod would ever be placed."""
    ages = {name: f"2026-01-01T00:00:0{n}Z" for n, name in enumerate("dbca")}
    tenants = Tenants(limited(2), *(reaching(name, created=at) for name, at in ages.items()), countPending=True)
    assert [await tenants.passes(name, created=ages[name]) for name in "abcd"] == [False, True, False, True]
    before = tenants.version("c", created=ages["c"])
    tenants.index.delete(reaching("b"))
    assert tenants.version("c", created=ages["c"]) != before
    assert await tenants.passes("c", created=ages["c"])
    assert audit(tenants.index) == []


@pytest.mark.parametrize("change", ["raised", "deleted", "retargeted"])
async def test_a_quota_that_lets_go_wakes_the_pods_that_it_rejected(change: str) -> None:
    tenants = Tenants(limited(0))
    assert not await tenants.passes("a")
    before, woken = tenants.version("a"), list[object]()
    quotas_of(tenants.index).changes.subscribe(woken.append)
    if change == "deleted":
        tenants.index.delete(limited(0))
    else:
        tenants.put(limited(1) if change == "raised" else limited(0, scopes=["NotTerminating"]))
    assert woken
    assert tenants.version("a") != before
    assert await tenants.passes("a")
    assert audit(tenants.index) == []


async def test_a_change_in_another_namespace_wakes_nothing() -> None:
    tenants = Tenants(limited(0), limited(3, in_namespace="other"))
    before = tenants.version("a")
    assert await tenants.passes("b", namespace="other")
    assert tenants.version("a") == before


# -- scopes and resources -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scope", "matching", "other"),
    [
        ("Terminating", {"spec": {"activeDeadlineSeconds": 60}}, {}),
        ("NotTerminating", {}, {"spec": {"activeDeadlineSeconds": 60}}),
        ("PriorityClass", {"spec": {"priorityClassName": "high"}}, {}),
        ("NotYetKnown", None, {}),
    ],
)
async def test_a_quota_with_another_scope_charges_the_pods_that_match_both(
    scope: str, matching: Any, other: Any
) -> None:
    tenants = Tenants(limited(0, scopes=[SCOPE, scope]))
    assert await tenants.passes("other", **other)
    if matching is not None:
        assert not await tenants.passes("matching", **matching)


@pytest.mark.parametrize(
    ("expression", "charged"),
    [
        ({"operator": "In", "values": ["high", "higher"]}, {"high"}),
        ({"operator": "NotIn", "values": ["high"]}, {"", "low"}),
        ({"operator": "Exists"}, {"high", "low"}),
        ({"operator": "DoesNotExist"}, {""}),
    ],
    ids=lambda value: value["operator"] if isinstance(value, dict) else "",
)
async def test_every_operator_of_the_priority_class_scope(expression: Json, charged: set[str]) -> None:
    scopes = [{"scopeName": SCOPE, "operator": "Exists"}, {"scopeName": "PriorityClass", **expression}]
    tenants = Tenants(limited(0, scopes=(), selected=scopes))
    rejected = {
        name for name in ("", "low", "high") if not await tenants.passes(f"a{name}", spec={"priorityClassName": name})
    }
    assert rejected == charged


async def test_best_effort_is_what_the_api_server_says() -> None:
    tenants = Tenants(limited(0, scopes=[SCOPE, "BestEffort"]))
    body = reaching_json("a")
    body["status"]["qosClass"] = "BestEffort"
    assert not (await tenants.filter(body)).passed
    assert await tenants.passes("burstable")


@pytest.mark.parametrize(
    ("name", "hard", "resources"),
    [
        ("count/pods", "1", {}),
        ("cpu", "1", {"requests": {"cpu": "600m"}}),
        ("requests.cpu", "1100m", {"requests": {"cpu": "600m"}}),
        ("memory", "1Gi", {"requests": {"memory": "600Mi"}}),
        ("limits.cpu", "1", {"limits": {"cpu": "600m"}}),
        ("limits.memory", "1Gi", {"limits": {"memory": "600Mi"}}),
        ("requests.nvidia.com/gpu", "1", {"requests": {"nvidia.com/gpu": "1"}}),
    ],
)
async def test_every_resource_of_a_quota_is_counted(name: str, hard: str, resources: Json) -> None:
    tenants = Tenants(quota(hard={name: hard}))
    spec = {"containers": [{"name": "main", "resources": resources}]}
    assert [await tenants.passes("a", spec=spec), await tenants.passes("b", spec=spec)] == [True, False]
    without = await tenants.passes("without", spec={"containers": []})
    assert without is (name != "count/pods")


async def test_several_quotas_hold_together() -> None:
    tenants = Tenants(limited(5), quota("small", {"pods": "1"}))
    assert await tenants.passes("a")
    assert "quota small" in await tenants.text("b")


async def test_a_quota_without_the_scope_concerns_no_pod() -> None:
    tenants = Tenants(limited(0, scopes=["NotTerminating"]), limited(0, scopes=()))
    assert await tenants.passes("a")


# -- deny by default ----------------------------------------------------------------------------------------------------

DENY = {"action": "Deny", "namespaceSelector": {"matchLabels": {"tenant": "yes"}}}


async def test_default_deny_rejects_pods_that_no_quota_covers_in_the_selected_namespaces() -> None:
    tenants = Tenants(namespace("team", tenant="yes"), default=DENY)
    assert await tenants.text("a") == (
        "namespace team: no quota of scope CrossNamespacePodAffinity limits the number of such pods, and "
        "quota.default denies them"
    )
    assert await tenants.passes("elsewhere", namespace="other")
    assert await tenants.passes("plain", apart=PLAIN)
    tenants.put(limited(1))
    assert [await tenants.passes("a"), await tenants.passes("b")] == [True, False]


async def test_a_relabelled_namespace_is_denied_or_let_go_at_once() -> None:
    tenants = Tenants(namespace("team", tenant="yes"), default=DENY)
    assert not await tenants.passes("a")
    before = tenants.version("a")
    tenants.put(namespace("team", tenant="no"))
    assert tenants.version("a") != before
    assert await tenants.passes("a")


@pytest.mark.parametrize(
    "bypass",
    [
        limited(50, scopes=[SCOPE, "Terminating"]),
        limited(50, scopes=[SCOPE, "PriorityClass"]),
        quota(hard={"count/secrets": "10"}),
        quota(hard={"requests.cpu": "100"}),
        limited(50, selected=[{"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}]),
    ],
    ids=["another scope", "a priority class", "nothing of pods", "only CPU", "a selector"],
)
async def test_a_quota_that_never_charges_the_pod_does_not_cover_it(bypass: Any) -> None:
    """In the API server its name would satisfy limitedResources, and the pod would be created without any limit."""
    tenants = Tenants(bypass, default={"action": "Deny"})
    assert "quota.default denies them" in await tenants.text("a")


async def test_exempt_pods_are_neither_rejected_nor_counted() -> None:
    tenants = Tenants(limited(1), default={"action": "Deny"}, exemptPriorityClasses=["vital"])
    assert all([await tenants.passes(f"a{n}", spec={"priorityClassName": "vital"}) for n in range(2)])
    assert await tenants.passes("system", namespace="kube-system")
    assert [await tenants.passes("b"), await tenants.passes("c")] == [True, False]


@pytest.mark.parametrize("name", ["system-cluster-critical", "system-node-critical"])
async def test_a_class_that_any_tenant_may_use_exempts_no_pod(name: str) -> None:
    assert not await Tenants(limited(0)).passes("a", spec={"priorityClassName": name})
    reach = Tenants(reach={"maxNamespaces": {"limit": 0}})
    assert not await reach.passes("a", spec={"priorityClassName": name})


async def test_a_pod_that_its_tenant_has_put_on_a_node_counts_and_keeps_others_away_as_in_kube_scheduler() -> None:
    """Only admission could have refused it (config/explanation/quotas.md)."""
    tenants = Tenants(limited(1), reaching("there", on="n1"))
    assert not await tenants.passes("a")
    other = reaching_json("db", namespace="other", apart=[], app="db")
    assert (await tenants.filter(other, ["n1"])).reasons == {Reason.EXISTING_ANTI_AFFINITY}


# -- what counts --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields",
    [
        {"apart": [term(app="db", namespaces=["team"])]},
        {"apart": [], "near": [term(app="web", namespace_selector={})]},
        {"apart": [], "prefers": [weighted(1, term(app="db", namespaces=["other"]))]},
        {"apart": [], "avoids": [weighted(1, term(app="db", namespaces=["other"]))]},
    ],
    ids=["the own namespace", "affinity", "preferred", "preferred anti-affinity"],
)
@pytest.mark.parametrize("mode", ["offload", "augment"])
async def test_every_form_of_the_scope_is_held_to_the_quota_in_both_modes(fields: Any, mode: str) -> None:
    tenants = Tenants(limited(0), mode=mode)
    assert not await tenants.passes("a", **fields)


async def test_a_pod_too_large_to_be_read_is_held_to_the_quota_in_augment_mode() -> None:
    """The in-tree plugins decide its terms there, so it must not leave the scope by its size."""
    tenants = Tenants(limited(0), mode="augment")
    large = {f"label-{n}": "x" * 60 for n in range(1000)}
    assert not await tenants.passes("a", labels=large)
    reach = Tenants(mode="augment", reach={"maxNamespaces": {"limit": 5}})
    assert "is not read above limits.podBytes" in await reach.text("a", labels=large)


# -- modes and counts ---------------------------------------------------------------------------------------------------


async def test_a_quota_in_mode_audit_lets_pods_pass_and_counts_each_once() -> None:
    tenants = Tenants(limited(0), quota_mode="Audit")
    assert [await tenants.passes("a"), await tenants.passes("a"), await tenants.passes("b")] == [True] * 3
    assert {key: n for key, n in tenants.verb.quotas.counts.items() if n} == {("quota", AUDITED): 2}


async def test_a_rejected_pod_counts_once_however_often_it_is_tried() -> None:
    tenants = Tenants(default={"action": "Deny"})
    assert [await tenants.passes("a") for _ in range(3)] == [False] * 3
    assert {key: n for key, n in tenants.verb.quotas.counts.items() if n} == {("default", REJECTED): 1}
