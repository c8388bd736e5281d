"""A GroupPlacement: the object that holds the decision for a group of gated pods and the progress of its release.

The leader writes it before it releases the first pod, so a decision outlives the process that made it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Final

import msgspec

from extender.model.release import GroupDecision, GroupKey, GroupPhase, Level

PLACEMENT_KIND: Final = "GroupPlacement"
PLACEMENTS: Final = "groupplacements"
_DIGITS: Final = 10  # of the hash in a name: 40 bits
_LONGEST_PART: Final = 100  # of a name; the longest name of an object has 253 characters
MOST_RECORDED: Final = 20_000
"""How many pods the object of a group records at most: 0.8 MB. etcd takes 1.5 MB."""


@dataclass(frozen=True, slots=True)
class PlacementStatus:
    """The progress of a release: how many pods exist (``ready``), are ``released`` and ``bound``.

    ``reason``: or Placed.
    """

    phase: GroupPhase = GroupPhase.COLLECTING
    ready: int = 0
    released: int = 0
    bound: int = 0
    reason: str = ""
    message: str = ""


class GroupPlacement(msgspec.Struct, frozen=True, gc=False):
    """One object. While ``decided`` is None nothing is decided, and ``levels`` is empty.

    ``pods``: the UIDs of the pods that are released with the group. A UID is written before its pod is released. None:
    at the decision the policy neither listed nor limited domains.
    """

    name: str
    uid: str
    group: GroupKey
    gate: str = ""
    size: int = 1
    levels: tuple[Level, ...] = ()
    decided: datetime | None = None
    pods: tuple[str, ...] | None = None
    status: PlacementStatus = PlacementStatus()

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.group.namespace}/{self.name}"

    @property
    def decision(self) -> GroupDecision | None:
        """The decision; None while nothing is decided."""
        if self.decided is None:
            return None
        return GroupDecision(self.group, self.gate, self.size, self.levels, self.decided)


def placement_name(group: GroupKey) -> str:
    """The name of the object of a group: always the same, and different from every other group of its namespace.

    The parts for policy and group help the reader. They are shortened, so the hash tells groups apart.
    """
    # A line break is in no part, so different groups have different texts.
    digest = sha256("\n".join(group).encode()).hexdigest()[:_DIGITS]
    policy = group.policy.rpartition("/")[2]
    parts = (_as_name(policy), _as_name(group.value.rpartition("/")[2]), digest)
    return "-".join(part for part in parts if part)


def _as_name(text: str) -> str:
    kept = "".join(character if character.isascii() and character.isalnum() else "-" for character in text.lower())
    return kept[:_LONGEST_PART].strip("-")
