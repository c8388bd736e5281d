"""What applying policies may do and has done: bounds, conflicts, and the changes of one policy."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from extender.model.policies import ConflictPolicy, JsonObject, Policy, PolicyKey
from extender.settings.limits import Limits
from extender.wire.objects.constraints import DEFAULT_LIMITS
from extender.wire.policies.node_terms import NODE_TERMS

_SHOWN: Final = 64


@dataclass(frozen=True, slots=True)
class Conflict:
    """A pod and a policy that contradict each other in one field; ``resolution``: what was done."""

    policy: PolicyKey
    field: str
    message: str
    resolution: ConflictPolicy


class RejectedError(Exception):
    """A conflict with a policy that rejects pods for it."""

    def __init__(self, conflict: Conflict) -> None:
        super().__init__(f"{conflict.policy}: {conflict.field}: {conflict.message}")
        self.conflict = conflict


@dataclass(frozen=True, slots=True)
class Bounds:
    """``limits``: what a pod may have in all. ``max_terms``: how many required node terms policies may make of it."""

    limits: Limits = DEFAULT_LIMITS
    max_terms: int = 64


@dataclass(slots=True)
class Changes:
    """What one policy did to a spec. ``added`` and ``replaced`` are part of the annotation: see `injected`."""

    policy: Policy
    added: JsonObject = field(default_factory=dict)
    replaced: JsonObject = field(default_factory=dict)
    conflicts: list[Conflict] = field(default_factory=list)
    terms_changed: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether the policy left the spec as it was."""
        return not (self.added or self.replaced or self.terms_changed)

    def absorb_gate(self, other: Changes) -> None:
        """Takes over what the same policy did for the moment of release."""
        for name, items in other.added.items():
            self.added[name] = [*self.added.get(name, ()), *items]
        self.conflicts += other.conflicts

    def fields(self) -> list[str]:
        """The fields that the policy changed, for people."""
        names = [*self.added, *(name for name in self.replaced if name not in self.added)]
        return [*names, NODE_TERMS] if self.terms_changed else names


def short(value: Any) -> str:
    """A value for a message, cut at 64 characters."""
    text = str(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
