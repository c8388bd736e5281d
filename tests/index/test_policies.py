"""The table of policies: selection, order, changes, and that a pod pays only for the policies that may select it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.index.objects.changes import IndexChange
from extender.index.policies import PolicyTable
from extender.model.objects import Effective, PodSignature
from extender.model.policies import FailurePolicy, InvalidPolicy, Moment, Policy, PolicyKey, PolicyScope, Subject
from extender.settings.policies import Policies
from tests.builders import Json, matching, pod
from tests.index.counting import Calls, sizes
from tests.policies import policy

WEB = Subject("shop", {"app": "web", "tier": "front"}, {"team": "a"})


def table_of(policies: Iterable[Policy]) -> PolicyTable:
    table = PolicyTable()
    for each in policies:
        table.put(each)
    return table


def names(found: Iterable[Policy]) -> list[str]:
    return [each.key.name for each in found]


def test_those_that_select_a_pod_are_found_in_the_order_in_which_they_apply() -> None:
    table = table_of([
        policy("own", "shop"),
        policy("other", "bank"),
        policy("late", priority=-1),
        policy("by-label", podSelector=matching(app="web")),
        policy("by-team", namespaceSelector=matching(team="a"), priority=9),
        policy("no-team", namespaceSelector=matching(team="b")),
        policy("inert", podSelector=None),
    ])  # fmt: skip
    assert names(table.select(WEB, Moment.ADMISSION)) == ["by-team", "by-label", "late", "own"]


def test_a_policy_is_found_at_its_moments_only() -> None:
    table = table_of([policy(when=["Scheduling"])])
    assert table.select(WEB, Moment.ADMISSION) == []
    assert names(table.select(WEB, Moment.SCHEDULING)) == ["policy"]


def test_a_changed_policy_is_found_by_its_new_selector_only() -> None:
    table = table_of([policy(podSelector=matching(app="web"))])
    table.put(policy(podSelector=matching(app="db"), generation=2))
    assert table.select(WEB, Moment.ADMISSION) == []
    assert names(table.select(Subject("shop", {"app": "db"}), Moment.ADMISSION)) == ["policy"]


def test_each_change_has_a_version_and_is_reported_and_a_repetition_is_neither() -> None:
    table = PolicyTable()
    notified: list[IndexChange[Policy]] = []
    table.changes.subscribe(notified.append)
    first, second = policy(), policy(generation=2, nodeName="n")
    table.put(first)
    table.put(policy())
    table.put(second)
    table.remove(second.key)
    table.remove(second.key)
    assert notified == [IndexChange(None, first), IndexChange(first, second), IndexChange(second, None)]
    assert table.version == 3


def test_an_invalid_policy_is_kept_out_and_named_and_replaces_its_earlier_version() -> None:
    table = table_of([policy()])
    invalid = InvalidPolicy(policy().key, ("spec.nodeName: ...",), scope=policy().scope)
    table.put(invalid)
    assert table.select(WEB, Moment.ADMISSION) == []
    assert table.invalid_for(WEB) == [invalid]
    assert table.statistics() == {"policies": 0, "invalid_policies": 1}
    table.put(policy())
    assert table.invalid() == []
    assert names(table.select(WEB, Moment.ADMISSION)) == ["policy"]


def test_a_new_list_replaces_everything() -> None:
    table = table_of([policy("gone"), policy("stays")])
    before = table.version
    table.replace([policy("stays"), policy("new"), InvalidPolicy(PolicyKey("g", "", "bad"), ("x",))])
    assert sorted(names(table)) == ["new", "stays"]
    assert table.version == before + 3  # gone, new and bad; the one that stays is no change
    table.replace([])
    assert (len(table), table.invalid()) == (0, [])


def test_an_invalid_policy_that_is_gone_leaves_only_its_place_among_the_latest_changes() -> None:
    table = table_of([])
    before = sizes(table)
    table.put(InvalidPolicy(PolicyKey("g", "team", "bad"), ("x",)))
    table.remove(PolicyKey("g", "team", "bad"))
    assert sizes(table) | {"_latest": 0} == before


def test_what_was_made_of_a_changed_policy_is_released_and_nothing_else() -> None:
    table, released = table_of([policy("a", podSelector=matching(app="web"))]), list[PodSignature]()
    table.release = released.append
    pods = {app: pod(app, app=app).signature for app in ("web", "db")}
    made = {app: pod(f"made-{app}", app=app, node_selector={"zone": "a"}).signature for app in pods}
    for app, signature in pods.items():
        table.keep(signature, Effective(None, made[app]))
    table.put(policy("a", podSelector=matching(app="web"), nodeName="n"))
    table.keep(pod("other").signature, Effective(None))
    assert released == [made["web"]]
    assert table.made_of(pods["db"]) is not None


def test_a_change_of_a_policy_looks_at_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    table = table_of([policy("a", podSelector=matching(app="web"))])
    for number in range(50):
        table.keep(pod(f"p{number}", app=f"a{number}").signature, Effective(None, pod(f"made{number}").signature))
    calls = Calls(monkeypatch, (PolicyScope, "selects"))
    table.put(policy("a", podSelector=matching(app="web"), nodeName="n"))
    assert calls.taken() == 0


@given(
    st.lists(
        st.tuples(st.sampled_from("abcde"), st.sampled_from(["", "shop"]), st.booleans(), st.booleans()), max_size=20
    )
)
def test_of_more_policies_than_a_limit_the_first_by_name_act_in_whatever_order_they_come(
    steps: list[tuple[str, str, bool, bool]],
) -> None:
    table, plain = PolicyTable(Policies(max_of_cluster=2, max_per_namespace=1)), dict[PolicyKey, Policy]()
    for name, namespace, is_there, is_strict in steps:
        each = policy(name, namespace, **({"failurePolicy": "Fail"} if is_strict else {}))
        plain.pop(each.key, None)
        if is_there:
            plain[each.key] = each
        (table.put if is_there else lambda deleted: table.remove(deleted.key))(each)
    expected, strict = [], set[str]()
    for place, most in (("", 2), ("shop", 1)):
        of_place = sorted(key for key in plain if key.namespace == place)
        expected += of_place[:most]
        beyond = [plain[key] for key in of_place[most:]]
        strict |= {place for each in beyond if each.failure_policy is FailurePolicy.FAIL}
        assert table.count_of(place) == len(of_place)
    assert sorted(each.key for each in table.select(WEB, Moment.ADMISSION)) == sorted(expected)
    assert {each.key for each in table.invalid()} == plain.keys() - set(expected)
    refusing = [each for each in table.invalid_for(WEB) if each.failure_policy is FailurePolicy.FAIL]
    assert {each.key.namespace for each in refusing} == strict


def test_a_policy_above_the_limit_is_named_with_the_limit() -> None:
    table = PolicyTable(Policies(max_per_namespace=1))
    table.replace([policy("a", "shop"), policy("b", "shop"), policy("c", "shop")])
    (found,) = table.invalid_for(WEB)
    assert (found.key.name, found.errors) == (
        "b",
        ("the namespace has more policies than policies.maxPerNamespace, which is 1: the first by name are in effect",),
    )


@pytest.mark.parametrize(
    "unrelated",
    [
        lambda number: policy(f"p{number}", f"other-{number % 7}"),
        lambda number: policy(f"p{number}", podSelector=matching(app=f"other-{number}")),
        lambda number: policy(f"p{number}", podSelector=matching(("app", "In", [f"a{number}", f"b{number}"]))),
        lambda number: policy(f"p{number}", namespaceSelector=matching(team=f"other-{number}")),
        lambda number: policy(f"p{number}", podSelector=None),
    ],
    ids=[
        "of other namespaces",
        "with another label",
        "with other labels",
        "for other namespaces",
        "without a selector",
    ],
)
def test_a_thousand_policies_that_cannot_select_a_pod_are_not_tried(
    unrelated: Callable[[int], Policy], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = table_of([*map(unrelated, range(1000)), policy("mine", "shop")])
    tried: list[PolicyScope] = []
    selects = PolicyScope.selects

    def counting(scope: PolicyScope, who: Subject) -> bool:
        tried.append(scope)
        return selects(scope, who)

    monkeypatch.setattr(PolicyScope, "selects", counting)
    assert names(table.select(WEB, Moment.ADMISSION)) == ["mine"]
    assert len(tried) == 1


SELECTORS: list[Json | None] = [None, {}, matching(app="web"), matching(("app", "NotIn", ["web"])), matching(team="a")]
POLICIES = st.builds(
    lambda name, namespace, pods, spaces, generation: policy(
        name, namespace, podSelector=pods, generation=generation, **({} if namespace else {"namespaceSelector": spaces})
    ),
    st.sampled_from("abc"),
    st.sampled_from(["", "shop", "bank"]),
    st.sampled_from(SELECTORS),
    st.sampled_from(SELECTORS),
    st.integers(1, 2),
)
SUBJECTS = [
    Subject(space, labels, of_space)
    for space in ("shop", "bank")
    for labels in ({}, {"app": "web"}, {"app": "db", "team": "a"})
    for of_space in (None, {}, {"team": "a"}, {"app": "web", "team": "b"})
]


@given(st.lists(st.tuples(POLICIES, st.sampled_from(["put", "remove", "invalid"])), max_size=12))
def test_the_table_selects_as_trying_every_policy_does_after_any_changes(steps: list[tuple[Policy, str]]) -> None:
    table, plain = PolicyTable(), dict[PolicyKey, Policy]()
    for each, step in steps:
        if step == "put":
            table.put(each)
            plain[each.key] = each
            continue
        plain.pop(each.key, None)
        table.remove(each.key) if step == "remove" else table.put(InvalidPolicy(each.key, ("x",)))
    for who in SUBJECTS:
        expected = sorted((p for p in plain.values() if p.scope.selects(who)), key=lambda p: p.order)
        assert table.select(who, Moment.SCHEDULING) == expected
    table.replace([])
    assert len(table._by_pod) + len(table._by_namespace) + table._filed_by_namespace == 0
