"""The judge of quotas: what is over a quota, what is refused without a ground, and what the extender could not know."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from extender.simulator.apiserver.kinds import NAMESPACES, PODS, RESOURCE_QUOTAS, ServedKind
from extender.simulator.apiserver.store import ADDED, DELETED, MODIFIED, ServedChange, Store, Stored
from extender.simulator.json_objects import JsonObject
from extender.simulator.oracle.journal import Journal, JournalDecision, Refusal, StoreChange
from extender.simulator.oracle.quotas import is_in_scope, quota_violations
from tests.builders import term, weighted
from tests.features.quotas.tenants import quota_json, reaching_json
from tests.simulator.oracle.steps import play


class Run:
    """A journal in its order, a second after another; the quota of `team` is for so many pods."""

    def __init__(self, limit: int | None = None, default: JsonObject | None = None) -> None:
        self.journal = Journal(Store())
        self.default = default or {}
        self.at = 0.0
        self.show(NAMESPACES, {"metadata": {"name": "team", "labels": {"tenant": "yes"}}})
        if limit is not None:
            self.quota(limit)
        self.wait(10)

    def wait(self, seconds: str | int) -> None:
        self.at += int(seconds)

    def show(self, kind: ServedKind, obj: JsonObject, event: str = ADDED, before: JsonObject | None = None) -> None:
        """A change of the store, now."""
        key = "/".join(filter(None, (obj["metadata"].get("namespace"), obj["metadata"]["name"])))
        stored, previous = (
            None if body is None else Stored(key, 1, orjson.dumps(body), body.get("spec", {}).get("nodeName") or "")
            for body in (obj, before)
        )
        assert stored is not None
        self.journal.entries.append(StoreChange(kind, ServedChange(event, stored, previous, b"", self.at)))

    def quota(self, limit: str | int) -> None:
        self.show(RESOURCE_QUOTAS, quota_json(hard={"pods": str(limit)}), MODIFIED)

    def place(self, name: str, **fields: Any) -> None:
        """The loop decides, as the request before it, which took no time."""
        self.journal.decided(self.at, self.at, f"uid-{name}", reaching_json(name, **fields), "n1")
        self.wait(1)

    def reject(
        self, name: str, reason: str = "namespace team: quota cross (CrossNamespacePodAffinity) limits pods"
    ) -> None:
        self.journal.rejected(self.at, self.at, f"uid-{name}", reaching_json(name), [reason])
        self.wait(1)

    def fail(self, name: str) -> None:
        self.journal.undone(f"uid-{name}", self.at)

    def delete(self, name: str) -> None:
        bound = reaching_json(name, on="n1")
        self.show(PODS, bound, DELETED, bound)

    def after(self, steps: str) -> list[str]:
        """What the judge says after these steps."""
        play(self, steps)
        return [str(violation) for violation in quota_violations(self.journal, self.default)]


RUNS: dict[str, tuple[int, str, list[str]]] = {
    "as many as the quota": (2, "place a b", []),
    "one more": (2, "place a b c", ["decision 3: team/c on n1: 2 pods of team count already, its quota is 2"]),
    "rejected below the quota, and still pending": (
        2,
        "place a; reject b",
        [
            "refusal: team/b: at most 1 pods of team count, its quota is 2",
            "refusal: team/b: waits while 1 pods of team count, its quota is 2",
        ],
    ),
    "rejected below the quota, and placed": (
        2,
        "place a; reject b; place b",
        ["refusal: team/b: at most 1 pods of team count, its quota is 2"],
    ),
    "places that are free again": (1, "place a; delete a; place b; fail b; place c", []),
    "a place that is free no more": (
        1,
        "place a; delete a; place b; fail b; place c d",
        ["decision 4: team/d on n1: 1 pods of team count already, its quota is 1"],
    ),
    "deleted a moment ago": (
        1,
        "place a; delete a; reject b; wait 10",
        ["refusal: team/b: waits while 0 pods of team count, its quota is 1"],
    ),
    "deleted long ago": (
        1,
        "place a; delete a; reject b; wait 10; reject b",
        [
            "refusal: team/b: at most 0 pods of team count, its quota is 1",
            "refusal: team/b: waits while 0 pods of team count, its quota is 1",
        ],
    ),
    "failed, and not yet requested again": (1, "place a; fail a; wait 60; reject b; place a", []),
    "failed, and requested again": (
        1,
        "place a; fail a; wait 60; reject b; place a; fail a; reject a b",
        [
            *(f"refusal: team/{name}: at most 0 pods of team count, its quota is 1" for name in "ab"),
            *(f"refusal: team/{name}: waits while 0 pods of team count, its quota is 1" for name in "ba"),
        ],
    ),
    "changed a moment ago": (
        0,
        "quota 1; reject a; place a; wait 10; quota 0; place b",
        ["decision 2: team/b on n1: 1 pods of team count already, its quota is 1"],
    ),
}


@pytest.mark.parametrize(("limit", "steps", "found"), RUNS.values(), ids=RUNS)
def test_a_run_is_judged_by_what_the_extender_could_know(limit: int, steps: str, found: list[str]) -> None:
    assert Run(limit).after(steps) == found


@pytest.mark.parametrize(
    ("tenant", "found"),
    [("yes", ["decision 1: team/a on n1: 0 pods of team count already, its quota is 0"]), ("no", [])],
)
def test_a_namespace_without_a_quota_is_judged_by_the_default(tenant: str, found: list[str]) -> None:
    run = Run(default={"action": "Deny", "namespaceSelector": {"matchLabels": {"tenant": tenant}}})
    assert run.after("place a") == found


def test_pods_out_of_the_scope_and_rejections_for_other_reasons_are_not_judged() -> None:
    run = Run(0)
    run.place("a", apart=[term(app="db")])
    run.reject("b", "node(s) had too few resources left")
    assert run.after("") == []
    assert not any(isinstance(entry, Refusal) for entry in run.journal.entries)
    assert isinstance(run.journal.entries[-1], JournalDecision)


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
    run = Run()
    run.show(RESOURCE_QUOTAS, quota_json(hard={"cpu": "1"}))
    with pytest.raises(ValueError, match="is not judged"):
        run.after("")
