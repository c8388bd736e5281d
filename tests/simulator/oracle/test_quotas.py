"""The judge of quotas: what is over a quota, what is refused without a ground, and what the extender could not know."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from extender.simulator.apiserver.kinds import NAMESPACES, PODS, RESOURCE_QUOTAS, ServedKind
from extender.simulator.apiserver.store import ADDED, DELETED, MODIFIED, ServedChange, Store, Stored
from extender.simulator.json_objects import JsonObject
from extender.simulator.oracle.journal import FailedBinding, Journal, JournalDecision, Refusal, StoreChange
from extender.simulator.oracle.quotas import is_in_scope, quota_violations
from tests.builders import term, weighted
from tests.quotas import quota_json, reaching_json


class Told:
    """A journal that is told in its order, a second after another; the quota of `team` is for so many pods."""

    def __init__(self, limit: int | None = None, default: JsonObject | None = None) -> None:
        self.journal = Journal(Store())
        self.default = default or {}
        self.at = 0.0
        self.show(NAMESPACES, {"metadata": {"name": "team", "labels": {"tenant": "yes"}}})
        if limit is not None:
            self.quota(limit)
        self.wait(10)

    def wait(self, seconds: float) -> None:
        self.at += seconds

    def show(self, kind: ServedKind, obj: JsonObject, event: str = ADDED, before: JsonObject | None = None) -> None:
        """A change of the store, now."""
        key = "/".join(filter(None, (obj["metadata"].get("namespace"), obj["metadata"]["name"])))
        stored, previous = (
            None if each is None else Stored(key, 1, orjson.dumps(each), each.get("spec", {}).get("nodeName") or "")
            for each in (obj, before)
        )
        assert stored is not None
        self.journal.entries.append(StoreChange(kind, ServedChange(event, stored, previous, b"", self.at)))

    def quota(self, limit: int) -> None:
        self.show(RESOURCE_QUOTAS, quota_json(hard={"pods": str(limit)}), MODIFIED)

    def placed(self, *names: str) -> None:
        """The loop decides, as the request before it, which took no time."""
        for name in names:
            self.journal.decided(self.at, self.at, f"uid-{name}", reaching_json(name), "n1")
            self.wait(1)

    def refused(self, name: str) -> None:
        text = "namespace team: quota cross (CrossNamespacePodAffinity) limits pods"
        self.journal.rejected(self.at, self.at, f"uid-{name}", reaching_json(name), [text])
        self.wait(1)

    def failed(self, name: str) -> None:
        self.journal.undone(f"uid-{name}", self.at)

    def gone(self, name: str) -> None:
        bound = reaching_json(name, on="n1")
        self.show(PODS, bound, DELETED, bound)

    def judged(self) -> list[str]:
        return [str(each) for each in quota_violations(self.journal, self.default)]


def test_one_pod_over_the_quota_is_found() -> None:
    told = Told(2)
    told.placed("a", "b")
    assert told.judged() == []
    told.placed("c")
    assert told.judged() == ["decision 3: team/c on n1: 2 pods of team count already, its quota is 2"]


def test_a_refusal_below_the_quota_is_found_and_a_pod_that_waits_beside_a_free_place() -> None:
    told = Told(2)
    told.placed("a")
    told.refused("b")
    assert told.judged() == [
        "refusal: team/b: at most 1 pods of team count, its quota is 2",
        "refusal: team/b: waits while 1 pods of team count, its quota is 2",
    ]
    told.placed("b")
    assert told.judged() == ["refusal: team/b: at most 1 pods of team count, its quota is 2"]


def test_a_place_is_free_again_after_the_pod_is_gone_or_its_binding_failed() -> None:
    told = Told(1)
    told.placed("a")
    told.gone("a")
    told.placed("b")
    told.failed("b")
    told.placed("c")
    assert told.judged() == []
    told.placed("d")
    assert len(told.judged()) == 1


def test_what_ended_a_moment_ago_may_still_have_counted() -> None:
    told = Told(1)
    told.placed("a")
    told.gone("a")
    told.refused("b")
    told.wait(10)
    assert [each.partition(": ")[2].partition(" ")[0] for each in told.judged()] == ["team/b:"]  # only that it waits
    told.refused("b")
    assert "at most 0 pods of team count" in told.judged()[0]


def test_a_binding_that_failed_may_have_counted_until_the_pod_is_requested_again() -> None:
    told = Told(1)
    told.placed("a")
    told.failed("a")
    told.wait(60)
    told.refused("b")
    told.placed("a")
    assert told.judged() == []
    told.failed("a")
    told.refused("a")
    told.refused("b")
    assert len([each for each in told.judged() if "at most 0" in each]) == 2


def test_a_quota_that_has_just_changed_may_count_as_it_was() -> None:
    told = Told(0)
    told.quota(1)
    told.refused("a")
    told.placed("a")
    told.wait(10)
    told.quota(0)
    told.placed("b")
    assert told.judged() == ["decision 2: team/b on n1: 1 pods of team count already, its quota is 1"]


def test_a_namespace_without_a_quota_is_judged_by_the_default() -> None:
    deny = {"action": "Deny", "namespaceSelector": {"matchLabels": {"tenant": "yes"}}}
    told = Told(default=deny)
    told.placed("a")
    assert len(told.judged()) == 1
    selected_otherwise = Told(default=deny | {"namespaceSelector": {"matchLabels": {"tenant": "no"}}})
    selected_otherwise.placed("a")
    assert selected_otherwise.judged() == []


def test_pods_out_of_the_scope_and_refusals_for_other_reasons_are_not_judged() -> None:
    told = Told(0)
    told.journal.decided(told.at, told.at, "uid-a", reaching_json("a", apart=[term(app="db")]), "n1")
    told.journal.rejected(told.at, told.at, "uid-b", reaching_json("b"), ["node(s) had too few resources left"])
    assert told.judged() == []
    assert not any(isinstance(entry, Refusal) for entry in told.journal.entries)
    assert isinstance(told.journal.entries[-1], JournalDecision)
    assert not isinstance(told.journal.entries[-1], FailedBinding)


@pytest.mark.parametrize(
    ("fields", "is_in"),
    [
        ({"apart": [term(app="db")]}, False),
        ({"apart": [term(app="db", namespaces=[])]}, False),
        ({"apart": [term(app="db", namespaces=["team"])]}, True),
        ({"apart": [], "near": [term(app="db", namespace_selector={})]}, True),
        ({"apart": [], "prefers": [weighted(1, term(namespaces=["b"]))]}, True),
        ({"apart": [], "avoids": [weighted(1, term(namespace_selector={}))]}, True),
    ],
)
def test_the_scope_by_the_letter(fields: Any, *, is_in: bool) -> None:
    assert is_in_scope(reaching_json("a", **fields)) is is_in


def test_a_quota_that_cannot_be_judged_fails_the_run() -> None:
    told = Told()
    told.show(RESOURCE_QUOTAS, quota_json(hard={"cpu": "1"}))
    with pytest.raises(ValueError, match="is not judged"):
        told.judged()
