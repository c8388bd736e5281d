"""What kube-scheduler does with an answer of ours: decodes it into Go's structs and checks it before it believes it.

Rules of `pkg/scheduler/extender.go`: a name that was not asked, a victim that it does not see on the node, or a
candidate without victims fails the whole call, and neither `NodeNames` nor `Nodes` means that no node passed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import orjson

from tests.builders import Json

FILTER_FIELDS = {"Nodes", "NodeNames", "FailedNodes", "FailedAndUnresolvableNodes", "Error"}


class RefusedAnswerError(AssertionError):
    """The scheduler would not accept the answer."""


@dataclass(frozen=True)
class Passed:
    """What is left of the asked nodes, and the texts for the others."""

    names: list[str]
    failed: Mapping[str, str] = field(default_factory=dict)
    unresolvable: Mapping[str, str] = field(default_factory=dict)
    items: Sequence[Json] = ()


def read_filter(body: bytes, requested: Sequence[str]) -> Passed:
    """The nodes that remain after a filter call about `requested`."""
    answer = orjson.loads(body)
    _require(set(answer) == FILTER_FIELDS, f"fields are {sorted(answer)}")
    _require(isinstance(answer["Error"], str), "Error is no string")
    _require(not answer["Error"], answer["Error"])
    failed, unresolvable = _texts(answer["FailedNodes"]), _texts(answer["FailedAndUnresolvableNodes"])
    items: list[Json] = answer["Nodes"]["items"] if answer["Nodes"] is not None else []
    if answer["NodeNames"] is not None:
        names = _strings(answer["NodeNames"])
    else:
        _require(answer["Nodes"] is not None, "neither NodeNames nor Nodes: no node passes")
        names = [item["metadata"]["name"] for item in items]
    for name in (*names, *failed, *unresolvable):
        _require(name in requested, f"extender {name} was not asked")
    _require(len(set(names)) == len(names), "a name stands twice")
    return Passed(names, failed, unresolvable, items)


def read_priorities(body: bytes, requested: Sequence[str]) -> dict[str, int]:
    """The score of each host; the scheduler looks them up by name, so only asked ones mean anything."""
    answer = orjson.loads(body)
    _require(isinstance(answer, list), "no bare array")
    for each in answer:
        _require(set(each) == {"Host", "Score"}, f"fields are {sorted(each)}")
        _require(type(each["Score"]) is int, f"score {each['Score']!r} is no int64")
        _require(each["Host"] in requested, f"{each['Host']} was not asked")
    return {each["Host"]: each["Score"] for each in answer}


def read_preemption(body: bytes, requested: Mapping[str, Sequence[str]]) -> dict[str, tuple[list[str], int]]:
    """UIDs of victims and PDB violations by node, of an answer about these candidates."""
    answer = orjson.loads(body)
    _require(set(answer) == {"NodeNameToMetaVictims"}, f"fields are {sorted(answer)}")
    found = {}
    for node, victims in answer["NodeNameToMetaVictims"].items():
        _require(set(victims) == {"Pods", "NumPDBViolations"}, f"fields are {sorted(victims)}")
        _require(bool(victims["Pods"]), "expected at least one victim pod")
        _require(all(set(pod) == {"UID"} for pod in victims["Pods"]), "a victim is more than its UID")
        uids = [pod["UID"] for pod in victims["Pods"]]
        _require(node in requested and set(uids) <= set(requested[node]), f"a victim is not on {node}")
        found[node] = (uids, int(victims["NumPDBViolations"]))
    return found


def _texts(value: object) -> dict[str, str]:
    _require(isinstance(value, dict), "a failure map is no map")
    made = dict(value) if isinstance(value, dict) else {}
    _require(all(isinstance(text, str) for text in made.values()), "a failure is no string")
    return made


def _strings(value: object) -> list[str]:
    _require(isinstance(value, list) and all(isinstance(name, str) for name in value), "names are no strings")
    return list(value) if isinstance(value, list) else []


def _require(holds: bool, problem: str) -> None:  # noqa: FBT001 (reads as a sentence)
    if not holds:
        raise RefusedAnswerError(problem)
