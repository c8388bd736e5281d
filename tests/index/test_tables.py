"""Tables of features: the index gives each its objects and its pods, and rules find it by its class."""

from __future__ import annotations

from dataclasses import dataclass, field

from extender.index.audit import audit
from extender.index.cluster import ClusterIndex
from extender.index.state import state_of
from extender.index.tables import FeatureTable, IndexParts, MakeTable
from extender.model.changes import ObjectChange
from extender.model.objects import PodQuota
from extender.rules import catalog
from extender.rules.catalog import counts_of_rules
from extender.rules.frames import IndexFrame
from extender.settings.rules import Rules
from tests.builders import node, pod
from tests.features.quotas.tenants import limited, reaching

QUOTA = PodQuota("team", "cross")


@dataclass(slots=True)
class Kept:
    """The calls of a table, in their order."""

    name: str
    notified: list[str]
    objects: dict[str, PodQuota] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def change(self, key: str, new: PodQuota | None) -> bool:
        """Keeps the object."""
        if new is None:
            return self.objects.pop(key, None) is not None
        self.objects[key] = new
        return True


class Other:
    """The class under which a second table would be found."""


def table_of(kept: Kept, *, is_notified: bool = True) -> MakeTable:
    def make(parts: IndexParts) -> FeatureTable:
        return FeatureTable(
            view=Kept,
            shown=kept,
            kind=PodQuota,
            api_kind="ResourceQuota",
            objects=kept.objects,
            change=kept.change,
            observe=(lambda each: kept.notified.append(f"{kept.name}: {each.uid in parts.pods}"))
            if is_notified
            else None,
            rebuild=lambda: kept.notified.append(f"{kept.name}: rebuilt"),
            checks=lambda: iter([lambda: kept.wrong]),
            check_pods=lambda uids: [f"{kept.name}: {uid}" for uid in uids if kept.wrong],
            statistics=lambda: {kept.name: len(kept.objects)},
        )

    return make


def index_with(*tables: MakeTable) -> ClusterIndex:
    return ClusterIndex(Rules(), counts_of_rules(), tables=tables)


def test_tables_are_reported_each_pod_in_their_order_after_the_table_of_pods() -> None:
    notified: list[str] = []
    index = index_with(
        table_of(Kept("first", notified)),
        table_of(Kept("off", notified), is_notified=False),
        table_of(Kept("last", notified)),
    )
    index.upsert(node("n1"))
    index.upsert(pod("a", on="n1"))
    assert notified == ["first: True", "last: True"]
    notified.clear()
    index.delete(pod("a", on="n1"))
    assert notified == ["first: False", "last: False"]


def test_a_table_is_reported_assumptions_and_plans_too() -> None:
    kept = Kept("only", [])
    index = index_with(table_of(kept))
    index.upsert(node("n1"))
    index.upsert(pod("a"))
    kept.notified.clear()
    index.assume(pod("a"), ["n1"], 0.0)
    index.assumed.discard(pod("a").uid)
    index.nominate_in_memory(pod("a"), "n1", ())
    index.end_nomination(pod("a").uid)
    assert kept.notified == ["only: True"] * 4


def test_a_table_keeps_the_objects_of_its_kind_and_they_are_part_of_the_state() -> None:
    kept = Kept("only", [])
    index = index_with(table_of(kept))
    assert index.upsert(QUOTA)
    assert index.statistics()["only"] == 1
    assert [change.obj for change in state_of(index) if isinstance(change, ObjectChange)] == [QUOTA]
    assert index.delete(QUOTA)
    assert not index.delete(QUOTA)
    assert index.view.table(Kept) is kept
    assert index.view.table(Other) is None


def test_a_table_is_rebuilt_and_audited_with_the_index() -> None:
    kept = Kept("only", [])
    index = index_with(table_of(kept))
    index.upsert(pod("a"))
    assert audit(index) == []
    kept.wrong.append("a wrong count")
    assert audit(index) == [f"only: {pod('a').uid}", "a wrong count"]
    kept.wrong.clear()
    kept.notified.clear()
    index.rebuild()
    assert kept.notified == ["only: rebuilt"]


def test_without_its_table_a_feature_rejects_nothing_and_its_objects_are_ignored() -> None:
    index = index_with()
    index.upsert(node("n1"))
    assert not index.upsert(limited(0))
    incoming = reaching("a")
    assert incoming.signature.affinity.cross_namespace
    compiled = index.view.compiled(incoming.signature)
    assert catalog.prepare_filters(incoming, compiled, index.view, IndexFrame()).rejects_all is None
    assert catalog.shared_places(incoming, index.view) == {}
    assert index.view.namespace_changes in catalog.unwatched_changes(index.view)
