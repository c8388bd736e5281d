"""What a namespace may use: what counts, how long, which pods wait, and which are notified when there is room again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from extender.index.audit import audit
from extender.index.cluster import ClusterIndex
from extender.index.counts.namespace_budgets import LIMIT_NAMES, Amounts, NamespaceUse
from extender.index.disruption_budgets import MOST_BUDGETS, MOST_READ
from extender.index.objects.selector_index import CROWDED
from extender.model.objects import DisruptionBudget, Excess, Pod
from extender.rules.catalog import counts_of_rules
from extender.settings.limits import NamespaceLimits
from extender.settings.rules import Rules
from extender.wire.objects.kinds import DISRUPTION_BUDGETS
from tests.builders import Json, matching, node, pod, requirement, spread, term, weighted
from tests.contenders import budget, cluster, contender
from tests.reflected_index import ReflectedIndex

TWO: Final = NamespaceLimits(selectors=2, topology_keys=2, cross_namespace_terms=2, compile_steps=1000)


def index_within(limits: NamespaceLimits = TWO, *, rejects_excess: bool = True) -> ClusterIndex:
    index = ClusterIndex(Rules(), counts_of_rules(), rejects_excess=rejects_excess, namespace_limits=limits)
    index.upsert(node("n1", zone="z1"))
    return index


def apart(name: str, app: str = "", **fields: Any) -> Pod:
    """A pod that keeps away from the pods of an application, its own by default."""
    return pod(name, apart=[term(app=app or name)], **fields)


def exceeded(index: ClusterIndex, *pods: Pod) -> list[str]:
    """For each pod, which is shown first, the limit that it exceeds."""
    excesses = []
    for incoming in pods:
        index.upsert(incoming)
        excesses.append(index.view.compiled(incoming.signature).excess)
    return ["" if excess is None else excess.limit for excess in excesses]


def used(index: ClusterIndex, namespace: str = "default") -> Amounts:
    uses = index.namespace_budgets.by_namespace
    return uses[namespace].amounts if namespace in uses else Amounts()


SELECTORS, OVERLAPPING = "perNamespace.selectors", "perNamespace.overlappingSelectors"
OVERLAP_3 = NamespaceLimits(overlapping_selectors=3)
# Of a label key a pod has one value: selectors of another value are not looked at.
NARROW = [apart(f"n{number}", app=f"v{number}") for number in range(20)]
LONG = matching(*((f"k{number}", "NotIn", ["x"]) for number in range(400)))
REPLICAS = [pod(f"a-{number}", apart=[term(app="a")], labels={"pod-index": str(number)}) for number in range(3)]
WIDE: dict[str, int] = dict.fromkeys(
    ("selectors", "topology_keys", "cross_namespace_terms", "compile_steps", "overlapping_selectors"), 10_000
)
FOUR_TERMS: dict[str, Callable[[int], Json]] = {
    "selectors": lambda at: term(app=f"a{at}"),
    "topologyKeys": lambda at: term(f"key-{at}", app="a"),
    "crossNamespaceTerms": lambda at: term(app="a", namespaces=[f"n{at}"]),
    "compileSteps": lambda at: term(selector=matching(("app", "In", [f"v{at}-{n}" for n in range(500)]))),
    "overlappingSelectors": lambda at: term(selector=matching((f"k{at}", "DoesNotExist", []))),
}


def keyed(at: int, operator: str, values: list[str], **labels: str) -> Pod:
    return pod(f"w{at}", apart=[term(selector=matching((f"k{at}", operator, values), **labels))])


# The limits, pods that no request comes for, the pods of requests, and the limit that each of them exceeds.
EXCEEDED: dict[str, tuple[NamespaceLimits, list[Pod], list[Pod], list[str]]] = {
    "the pod that needs more than is left, and its namespace alone": (
        *(TWO, [], [*map(apart, "abc"), *(apart(f"other-{name}", namespace="other") for name in "ab")]),
        ["", "", SELECTORS, "", ""],
    ),
    **{
        f"the limit {limit}": (
            NamespaceLimits(**WIDE | {name: 1510 if limit == "compileSteps" else 3}), [],
            [pod(f"p{at}", apart=[FOUR_TERMS[limit](at)]) for at in range(4)], ["", "", "", f"perNamespace.{limit}"],
        )
        for limit, name in zip(LIMIT_NAMES, WIDE, strict=True)
    },
    "one pod can match them all": (
        OVERLAP_3, [], [*NARROW, *(keyed(at, "Exists", []) for at in range(3))], [*[""] * 22, OVERLAPPING],
    ),
    "one pod can match them all, of one value": (
        OVERLAP_3, [], [*NARROW, *(keyed(at, "NotIn", ["x"], app="v1") for at in range(3))], [*[""] * 22, OVERLAPPING],
    ),
    "many requirements overlap as several selectors": (
        NamespaceLimits(overlapping_selectors=20), [], [pod("long", apart=[term(selector=LONG)])], [OVERLAPPING],
    ),
    "replicas and pods without constraints": (TWO, [], [apart("a"), apart("b"), *REPLICAS, pod("plain")], [""] * 6),
    "pods on nodes count above the limits": (
        TWO, [apart(name, on="n1") for name in "abc"],
        [apart("a-2", "a", labels={"pod-index": "2"}), pod("a-3", apart=[term("zone", app="a")]), apart("d")],
        ["", "", SELECTORS],
    ),
    # They are another scheduler's, or held by a gate: nothing of them is compiled.
    "pods without a request do not count": (TWO, [*map(apart, "abc")], [apart("d")], [""]),
    "a pod that has ended": (
        TWO, [apart("c", on="n1"), apart("c", on="n1", phase="Succeeded")], [apart("a"), apart("late")], ["", ""],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("limits", "there", "incoming", "expected"), EXCEEDED.values(), ids=EXCEEDED)
def test_the_limit_that_a_pod_exceeds(
    limits: NamespaceLimits, there: list[Pod], incoming: list[Pod], expected: list[str]
) -> None:
    """In augment mode the use is counted and no pod waits."""
    index, augment = index_within(limits), index_within(limits, rejects_excess=False)
    for existing in there:
        index.upsert(existing)
        augment.upsert(existing)
    assert exceeded(index, *incoming) == expected
    assert exceeded(augment, *incoming) == [""] * len(incoming)
    assert augment.namespace_budgets.statistics()["waiting_signatures"] == 0
    assert SELECTORS not in expected or used(augment).selectors == used(index).selectors + 1


RACKS = [{"matchExpressions": [requirement("rack", "In", ["r1", "r2"])]}]


@pytest.mark.parametrize(
    ("incoming", "expected"),
    [
        ([apart("a"), apart("b"), *REPLICAS, pod("plain")], {"": Amounts(2, 1, 0, 8)}),
        (
            [pod("p", apart=[term("zone", app="a")], avoids=[weighted(1, term(app="a"))], spreads=[spread(app="a")])],
            {"selectors": 1, "topology_keys": 2},
        ),
        *(
            ([pod("p", apart=[term(app="a", **reach)])], {"cross_namespace_terms": count})
            for reach, count in (
                ({}, 0),
                ({"namespaces": ["default"]}, 0),
                ({"namespaces": ["default", "other"]}, 1),
                ({"namespaces": ["other"]}, 1),
                ({"namespace_selector": {}}, 1),
                ({"namespace_selector": matching(team="a")}, 1),
            )
        ),
        (
            [pod("p", spreads=[spread(app="a")], node_terms=RACKS, node_selector={"disk": "ssd"})],
            {"compile_steps": 1 + 2 + 3 + 1},
        ),
        ([apart("a", on="n1"), apart("b", on="n1"), apart("c", on="n1")], {"selectors": 3}),
    ],
)
def test_what_pods_use(incoming: list[Pod], expected: Json) -> None:
    index = index_within()
    exceeded(index, *incoming)
    amounts = used(index)._asdict() | {"": used(index)}
    assert {name: amounts[name] for name in expected} == expected


def test_a_pod_that_another_scheduler_places_counts_on_its_node() -> None:
    index = index_within()
    index.upsert(apart("a"))
    assert used(index) == Amounts()
    index.upsert(apart("a", on="n1"))
    assert used(index).selectors == 1


def test_the_text_names_namespace_use_and_setting() -> None:
    index = index_within()
    exceeded(index, apart("a"), apart("b"))
    index.upsert(late := pod("late", apart=[term(app="c"), term(app="d")]))
    text = "namespace default uses 2 different selectors and the pod adds 2, limits.perNamespace.selectors is 2"
    before = index.statistics()
    assert index.view.compiled(late.signature).excess == Excess(SELECTORS, text, "default")
    assert index.statistics() == before | {"waiting_signatures": 1}, "nothing is compiled of a pod that waits"


def test_five_thousand_deployments_of_a_namespace_fit_with_both_revisions_of_a_rollout_each() -> None:
    """As reported in kubernetes 105750: 5,000 Deployments, here with two constraints, four labels and matchLabelKeys."""
    index = index_within(NamespaceLimits())
    for number in range(5000):
        for revision in ("old", "new"):
            labels = {
                "app": "shop",
                "component": f"c{number}",
                "tier": "web",
                "pod-template-hash": f"{revision}{number}",
            }
            constraints = [
                spread(key, app="shop", component=f"c{number}", tier="web", match_label_keys=["pod-template-hash"])
                for key in ("zone", "host")
            ]
            assert exceeded(index, pod(f"{number}-{revision}", labels=labels, spreads=constraints)) == [""]
    assert used(index).selectors == 10_000
    assert max(index.namespace_budgets.shares().values()) <= 0.5


def test_what_a_pod_adds_is_found_without_a_walk_over_all_that_its_namespace_uses() -> None:
    class Key(str):
        """A topology key that counts how often it is looked up in a table."""

        looked_up = 0
        __slots__ = ()

        def __hash__(self) -> int:
            Key.looked_up += 1
            return str.__hash__(self)

    use = NamespaceUse()
    use.hold(pod("all", apart=[term(f"key-{number}", app="a") for number in range(100)]).signature)
    keys: Any = dict.fromkeys([Key(f"held-{number}") for number in range(5000)], 1)
    for table in (use._selectors, use._topology_keys, use._terms):
        table.update(keys)
    Key.looked_up = 0
    assert use.added_by(pod("late", apart=[term("late", app="late")]).signature) == (1, 1, 0, 4, 0)
    assert Key.looked_up < 100


def test_a_label_that_all_workloads_share_files_none_of_them_twice() -> None:
    """A new template is compared with a few selectors, not with those of all workloads that share its first label."""
    index = index_within(NamespaceLimits())
    for number in range(1000):
        labels: Json = {"app": "shop", "component": f"c{number}"}
        exceeded(index, pod(f"p{number}", labels=labels, apart=[term(**labels)], spreads=[spread(**labels)]))
    late = pod("late", labels={"app": "shop", "component": "c500"}).signature
    filed = (index.counts.selections._anchors, index.counts.terms._owner_anchors)
    assert [len(list(each.candidates(late.namespace, late.labels))) <= 2 * CROWDED + 2 for each in filed] == [
        True,
        True,
    ]
    assert audit(index) == []


def test_a_request_for_a_pod_that_does_not_exist_counts_nothing_until_the_pod_exists() -> None:
    index = index_within()
    ghost = apart("ghost")
    assert index.view.compiled(ghost.signature).excess is None
    exceeded(index, apart("a"), apart("b"))
    assert index.view.compiled(apart("late").signature).excess is not None
    uses = index.namespace_budgets.by_namespace["default"]
    assert (uses.amounts.selectors, dict(uses.waiting)) == (2, {})
    assert exceeded(index, ghost) == [SELECTORS], "its constraints were compiled before it existed"


def test_room_is_there_when_the_last_pod_with_the_constraints_is_gone_and_those_that_wait_are_reported() -> None:
    index, notified = index_within(), list[object]()
    index.view.budget_changes.subscribe(notified.append)
    first, replica, late = apart("a"), apart("a-2", "a"), apart("late")
    assert exceeded(index, first, replica, apart("b", on="n1"), late) == ["", "", "", "perNamespace.selectors"]
    index.delete(first)
    assert (notified, exceeded(index, late)) == ([], ["perNamespace.selectors"])
    index.delete(replica)
    assert (len(notified), exceeded(index, late)) == (1, [""])
    index.delete(late)
    assert len(notified) == 1, "nothing waits any more"


def test_the_metrics_have_the_namespaces_that_use_most_and_the_pods_that_wait() -> None:
    index = index_within(NamespaceLimits(selectors=4, topology_keys=10, cross_namespace_terms=1, compile_steps=1000))
    for number in range(12):
        exceeded(index, *(apart(f"p{number}-{each}", namespace=f"ns{number}") for each in range(1 + number % 3)))
    exceeded(index, *(apart(f"late-{each}", namespace="ns2") for each in range(2)))
    exceeded(index, pod("replica", apart=[term(app="late-1")], namespace="ns2"))
    shares = index.namespace_budgets.shares()
    assert len({namespace for namespace, _ in shares}) == 10
    assert (shares["ns2", "selectors"], shares["ns2", "topologyKeys"]) == (1.0, 0.1)
    assert {f"ns{number}" for number in (1, 2, 4, 5, 7, 8, 10, 11)} < {namespace for namespace, _ in shares}
    assert index.namespace_budgets.waiting_pods(index.counts.compiler.pods) == {"(others)": 0, "ns2": 2}


def test_many_namespaces_with_pods_that_wait_are_added_up() -> None:
    index = index_within(NamespaceLimits(selectors=1))
    for number in range(12):
        exceeded(index, *(apart(f"{name}-{number}", namespace=f"ns{number}") for name in "ab"))
    waiting = index.namespace_budgets.waiting_pods(index.counts.compiler.pods)
    assert (len(waiting), waiting["(others)"], sum(waiting.values())) == (11, 2, 12)


def test_the_audit_names_a_namespace_whose_use_is_wrong() -> None:
    index = index_within()
    exceeded(index, apart("a"), bound := apart("b", on="n1"))
    use = index.namespace_budgets.by_namespace["default"]
    use._steps += 1
    use.waiting[apart("deleted").signature] = Excess("x", "y")
    problems = audit(index)
    assert problems == [
        "budget of namespace default: 1 signatures without a pod wait",
        f"budget of namespace default: {Amounts(2, 1, 0, 9)} in use, should be {Amounts(2, 1, 0, 8)}",
    ]
    index.namespace_budgets.release(bound.signature)
    assert "pod default/b: does not count in the budget of its namespace" in audit(index)


# -- Disruption budgets: read from the API, found by namespace, and the pods that each protects ------------------------


def protecting(index: ClusterIndex, pod: Pod) -> list[str] | None:
    """The names of the budgets that protect a pod; None for more than can be read."""
    budgets, _ = index.view.budgets_protecting(pod)
    return None if budgets is None else sorted(held.name for held in budgets)


def allowed(index: ClusterIndex, pod: Pod) -> list[int]:
    """How many disruptions the budgets allow that protect a pod."""
    budgets, _ = index.view.budgets_protecting(pod)
    return [held.allowed for held in budgets or ()]


@pytest.mark.parametrize(
    ("given", "protects"),
    [
        pytest.param(budget(app="db"), True, id="selected"),
        pytest.param(budget(app="web"), False, id="another label"),
        pytest.param(budget(app="db", namespace="other"), False, id="another namespace"),
        pytest.param(budget(), False, id="no selector selects no pod"),
        pytest.param(budget(selector={}), True, id="the empty selector selects every pod"),
        pytest.param(budget(selector=matching(("tier", "DoesNotExist", []))), True, id="no label required"),
        pytest.param(budget(app="db", disrupted=("db-1",)), False, id="its eviction has been let through already"),
    ],
)
def test_a_budget_protects_the_pods_that_it_selects(given: DisruptionBudget, *, protects: bool) -> None:
    assert protecting(cluster(given), contender("db-1", app="db")) == (["keep"] if protects else [])


def test_a_budget_protects_until_its_selector_changes_or_it_is_deleted() -> None:
    db = contender("db", app="db")
    held = cluster(budget("keep", 1, app="db"), budget("other", namespace="elsewhere", app="db"))
    assert allowed(held, db) == [1]
    for change, expected in (
        (budget("keep", 2, app="db"), [2]),
        (budget("keep", 2, app="web"), []),
        (budget("keep", 3, app="db"), [3]),
    ):
        version = held.view.claims_version
        held.upsert(change)
        assert allowed(held, db) == expected
        assert held.view.claims_version > version
        assert not held.upsert(change), "a budget that has not changed changes nothing"
    held.delete(budget("keep", 3, app="db"))
    assert (allowed(held, db), len(held.budgets.objects)) == ([], 1)


def test_selectors_are_read_once_for_a_signature_while_only_statuses_change() -> None:
    held = cluster(*(budget(f"b{n}", selector=matching((f"key-{n}", "DoesNotExist", []))) for n in range(9)))
    pods = [contender(f"db-{number}", app="db") for number in range(2)]
    reads = [held.view.budgets_protecting(each)[1] for each in (*pods, pods[0])]
    held.upsert(budget("b0", 5, selector=matching(("key-0", "DoesNotExist", []))))
    reads.append(held.view.budgets_protecting(pods[0])[1])
    held.upsert(budget("b0", 5, selector=matching(("key-1", "DoesNotExist", []))))
    reads.append(held.view.budgets_protecting(pods[0])[1])
    assert reads[0] == reads[4] > reads[1] == reads[2] == reads[3]


@pytest.mark.parametrize(
    "budgets",
    [
        [budget(f"b{n}", selector=matching((f"key-{n}", "DoesNotExist", []))) for n in range(MOST_READ)],
        [budget(f"b{n}", app="db") for n in range(MOST_BUDGETS + 1)],
        [budget(selector=matching(("key", "NotIn", [f"v{n}" for n in range(MOST_READ)])))],
    ],
    ids=["requirements", "budgets", "values"],
)
def test_more_budgets_than_can_be_read_protect_the_pod_and_cost_no_more(budgets: list[DisruptionBudget]) -> None:
    held = cluster(*budgets)
    assert protecting(held, contender("db", app="db")) is None
    assert held.view.budgets_protecting(contender("other", app="db", tier="x"))[1] <= MOST_READ
    assert protecting(held, contender("db", app="db", namespace="elsewhere")) == []


def test_budgets_that_require_other_labels_are_not_read() -> None:
    held = cluster(*(budget(f"b{number}", app=f"app-{number}") for number in range(1000)))
    assert protecting(held, contender("db", app="app-7")) == ["b7"]


def test_a_new_list_of_budgets_replaces_the_old_one() -> None:
    """A deleted budget is not kept by its namesake in another namespace."""
    kind = DISRUPTION_BUDGETS.name
    reflected = ReflectedIndex(cluster(), [kind], {kind: [budget("old"), budget("keep", 1)]})
    assert reflected.replace(kind, [budget("keep", 1), budget("new")]) == 2
    assert sorted(held.name for held in reflected.index.budgets.objects.values()) == ["keep", "new"]
    web = {space: budget("web", namespace=space, app="web") for space in ("team-a", "team-b")}
    reflected = ReflectedIndex(cluster(), [kind], {kind: list(web.values())})
    pods = [contender("web", namespace=space, app="web") for space in web]
    seen = [[protecting(reflected.index, existing) for existing in pods]]
    reflected.replace(kind, [web["team-a"]])
    seen.append([protecting(reflected.index, existing) for existing in pods])
    reflected.apply(kind, web["team-b"])
    reflected.apply(kind, web["team-a"], deleted=True)
    reflected.replace(kind, [])
    seen.append([protecting(reflected.index, existing) for existing in pods])
    assert seen == [[["web"], ["web"]], [["web"], []], [[], []]]
