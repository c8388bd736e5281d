"""What `extender policy test` prints: the diff of each pod, which policy set which field, conflicts, and nodes."""

import difflib
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import orjson
import yaml

from extender.cli.policies.policy_scheduling import Held
from extender.model.policies import INJECTED_ANNOTATION, JsonObject, PolicyKey
from extender.model.units import counted
from extender.verbs.admit.decision import Admission
from extender.verbs.admit.json_edits import drop
from extender.verbs.admit.reviews import NodeMatch

FORMATS: Final = ("table", "json", "yaml")
_SHOWN: Final = 5  # names of nodes


@dataclass(slots=True)
class PolicyFound:
    """A policy of a file, with its errors or warnings."""

    path: str
    key: PolicyKey
    value: JsonObject
    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def document(self) -> JsonObject:
        """For scripts."""
        return {"file": self.path, "policy": str(self.key), "errors": self.errors, "warnings": self.warnings}


@dataclass(frozen=True, slots=True)
class Tested:
    """An object before and after admission (None: refused), and the nodes that it fits before and after.

    ``held``: what policies hold a pod to later, at scheduling.
    """

    before: JsonObject
    after: JsonObject | None
    admission: Admission
    nodes_before: NodeMatch | None = None
    nodes: NodeMatch | None = None
    held: Held | None = None

    @property
    def name(self) -> str:
        """``Kind namespace/name``."""
        metadata = self.before["metadata"]
        name = metadata.get("name") or f"{metadata.get('generateName') or ''}*"
        return f"{self.before.get('kind')} {metadata['namespace']}/{name}"

    @property
    def notes(self) -> dict[str, str]:
        """What the audit log of an API server would have."""
        found: dict[str, str] = self.admission.review["response"].get("auditAnnotations") or {}
        return found

    @property
    def is_good(self) -> bool:
        """Whether it is admitted without a conflict or an error, and fits a node as far as that is known."""
        has_room = (self.nodes is None or bool(self.nodes.matching)) and (self.held is None or self.held.has_room)
        return self.after is not None and not {"conflicts", "errors"} & self.notes.keys() and has_room

    def fields(self) -> list[JsonObject]:
        """Each field that a policy set, with the policy, and what it replaced."""
        return [
            {"field": name, "policy": str(each.policy.key)}
            | ({"replaced": each.replaced[name]} if name in each.replaced else {})
            for each in self.admission.changes
            for name in each.fields()
        ]

    def conflicts(self) -> list[JsonObject]:
        """Each conflict, with what was done."""
        return [
            {"policy": str(one.policy), "field": one.field, "message": one.message, "resolution": str(one.resolution)}
            for each in (*self.admission.changes, *self.admission.audited)
            for one in each.conflicts
        ]

    @property
    def refusal(self) -> str:
        """Why it is refused; empty where it is admitted."""
        response = self.admission.review["response"]
        return "" if response["allowed"] else str(response["status"]["message"])

    def document(self) -> JsonObject:
        """For scripts."""
        return {
            "object": self.name,
            "result": self.admission.result,
            "refusal": self.refusal,
            "fields": self.fields(),
            "conflicts": self.conflicts(),
            "warnings": self.admission.review["response"].get("warnings") or [],
            "notes": self.notes,
            "nodes": None if self.nodes is None else _nodes_document(self.nodes, self.nodes_before),
            "scheduling": None if self.held is None else self.held.document(),
            "admitted": self.after,
        }


@dataclass(slots=True)
class Report:
    """All policies and all objects."""

    policies: list[PolicyFound]
    tested: list[Tested] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        """Whether every policy is valid, and every object passes."""
        return not any(each.errors for each in self.policies) and all(each.is_good for each in self.tested)

    def write(self, form: str) -> None:
        """Prints it. Problems of policies go to standard error, unless they are part of a JSON document."""
        if form == "json":
            document = {
                "policies": [each.document() for each in self.policies],
                "objects": [each.document() for each in self.tested],
            }
            print(orjson.dumps(document, option=orjson.OPT_INDENT_2).decode())
            return
        for line in self._problems():
            print(line, file=sys.stderr)
        if form == "yaml":
            print("---\n".join(_dump(each.after) for each in self.tested if each.after is not None), end="")
            lines = [line for each in self.tested for line in _outcome(each)]
            print("\n".join(lines), file=sys.stderr)
            return
        for each in self.tested:
            print("\n".join([*_lines(each), ""]))
        changed = sum(each.admission.result == "mutated" for each in self.tested)
        refused = sum(each.after is None for each in self.tested)
        print(f"{counted(len(self.tested), 'object')}: {changed} changed, {refused} refused")

    def _problems(self) -> Iterator[str]:
        for each in self.policies:
            yield from (f"{each.path}: {each.key}: {error}" for error in each.errors)
            yield from (f"{each.path}: {each.key}: warning: {text}" for text in each.warnings)


def _lines(tested: Tested) -> Iterator[str]:
    yield tested.name
    yield from _diff(tested)
    rows = [("FIELD", "POLICY")] if tested.fields() else []
    rows += [(str(each["field"]), str(each["policy"])) for each in tested.fields()]
    width = max((len(name) for name, _ in rows), default=0)
    yield from (f"  {name:<{width}}  {policy}" for name, policy in rows)
    yield from (f"  {line}" for line in _outcome(tested))


def _outcome(tested: Tested) -> Iterator[str]:
    """What became of an object, without the diff."""
    if tested.refusal:
        yield f"refused: {tested.refusal}"
    elif tested.admission.result == "allowed":
        yield f"nothing to do: {tested.notes.get('skipped') or 'no policy changes it at admission'}"
    for each in tested.conflicts():
        yield f"conflict: {each['policy']}: {each['field']}: {each['message']} ({each['resolution']})"
    for name, title in (("audited", "mode Audit, not applied"), ("errors", "error")):
        if name in tested.notes:
            yield f"{title}: {tested.notes[name]}"
    if tested.nodes is not None:
        yield _nodes(tested.nodes, tested.nodes_before)
    if tested.held is not None:
        yield from tested.held.lines()
        if tested.held.nodes is not None:
            yield f"at scheduling, {_nodes(tested.held.nodes, None)}"


def _nodes(found: NodeMatch, before: NodeMatch | None) -> str:
    names = ", ".join(found.matching[:_SHOWN])
    more = f" and {len(found.matching) - _SHOWN} more" if len(found.matching) > _SHOWN else ""
    was = f", {len(before.matching)} before" if before is not None else ""
    reasons = "".join(f"; {count} {reason}" for reason, count in sorted(found.rejected.items()))
    return f"nodes: {len(found.matching)} of {found.total} match{was}{': ' if names else ''}{names}{more}{reasons}"


def _nodes_document(found: NodeMatch, before: NodeMatch | None) -> JsonObject:
    return {
        "matching": list(found.matching),
        "total": found.total,
        "rejected": dict(found.rejected),
        "matchingBefore": None if before is None else list(before.matching),
    }


def _diff(tested: Tested) -> Iterator[str]:
    """The change as a unified diff of YAML. The record of what was injected, one long line for machines, is left out."""
    if tested.after is None:
        return
    before, after = _dump(tested.before).splitlines(), _dump(_without_record(tested)).splitlines()
    yield from difflib.unified_diff(before, after, "before", "after", lineterm="")


def _without_record(tested: Tested) -> Any:
    path = ("metadata", "annotations")
    after = drop(tested.after or {}, (*path, INJECTED_ANNOTATION))
    return (
        after
        if after["metadata"].get("annotations") or "annotations" in tested.before["metadata"]
        else drop(after, path)
    )


def _dump(value: Any) -> str:
    return yaml.safe_dump(value, sort_keys=False, width=1000)
