"""Checks of the service's answers to requests of any kind."""

from __future__ import annotations

import re
from typing import Any, Final

import orjson
from hypothesis import currently_in_test_context, note

from extender.wire.extender_v1 import decode_args, decode_preemption_args
from tests.builders import Json, settings
from tests.server.fuzzing import Answer

FAILED: Final = "the extender failed"
NOTHING: Final[Json] = {
    "Nodes": None,
    "NodeNames": [],
    "FailedNodes": {},
    "FailedAndUnresolvableNodes": {},
    "Error": "",
}
TOP_FIELDS: Final = {
    *("Pod", "Nodes", "NodeNames", "NodeNameToVictims", "NodeNameToMetaVictims"),
    *("PodName", "PodNamespace", "PodUID", "Node"),
}
IN_NO_FIELD: Final = ("is nested too deeply", "is not UTF-8")
SOON: Final = {"expiry": "1s", "wait": "5ms", "failureGrace": "100ms"}
SOON_UNKNOWN: Final[Json] = {"unknownPodWait": "5ms"}  # of pods whose request cannot be decoded here
BINDING: Final[Json] = {"paths": {"bind": "/bind"}}
MODES: Final = {
    "decisive, executing": settings(
        placement="decisive",
        server=BINDING,
        kube=SOON_UNKNOWN,
        answers={"shortlist": 3},
        assumedPods=SOON,
        rejectedPods={"perSecond": 5000},
    ),
    "cooperative, advising": settings(
        server=BINDING,
        kube=SOON_UNKNOWN,
        assumedPods=SOON,
        preemption={"mode": "advise"},
        answers={"scoreScale": "inTree"},
        rejectedPods={"perSecond": 5000},
    ),
}


def check(verb: str, body: bytes, answer: Answer) -> None:
    """The answer has the verb's form, or is an error that names the field, where one is at fault."""
    if currently_in_test_context():
        note(f"{verb} {body[:3000]!r}\n{answer.status} {answer.text[:1000]}")
    assert FAILED not in answer.text
    assert answer.status in {200, 400}
    if answer.status == 400:
        assert verb != "filter"
        check_error(body, answer.json["error"], answer.json.get("field", ""))
    elif verb == "filter" and answer.json["Error"].startswith("cannot read the request: "):
        assert answer.json | {"Error": ""} == NOTHING
        text = answer.json["Error"].removeprefix("cannot read the request: ")
        check_error(body, answer.json["Error"], text.partition(": ")[0] if ": " in text else "")
    else:
        FORMS[verb](body, answer.json)


def check_error(body: bytes, text: str, field: str) -> None:
    """A client that sent JSON is told the field."""
    assert text.startswith("cannot read the request: ")
    if is_object(body) and not text.endswith(IN_NO_FIELD):
        assert re.split(r"[.\[]", field)[0] in TOP_FIELDS


def is_object(body: bytes) -> bool:
    try:
        return isinstance(orjson.loads(body), dict)
    except orjson.JSONDecodeError:
        return False


def check_filter(body: bytes, answer: Any) -> None:
    args = decode_args(body)
    assert answer.keys() == NOTHING.keys()
    assert isinstance(answer["Error"], str)
    if args.nodes is None:
        requested, passed = args.node_names or [], answer["NodeNames"]
        assert answer["Nodes"] is None
    else:
        requested, passed = [node.name for node in args.nodes], names_of(answer)
    assert isinstance(passed, list)
    assert {*passed, *answer["FailedNodes"], *answer["FailedAndUnresolvableNodes"]} <= set(requested)
    texts = [*answer["FailedNodes"].values(), *answer["FailedAndUnresolvableNodes"].values()]
    assert all(text and isinstance(text, str) for text in texts)
    assert not (passed and texts)


def names_of(answer: Any) -> list[str]:
    """The names of the nodes that came back; one that came without a name has none."""
    if answer["Nodes"] is None:  # undecidable
        assert answer["Error"]
        return []
    return [(item.get("metadata") or {}).get("name") or "" for item in answer["Nodes"]["items"]]


def check_scores(body: bytes, answer: Any) -> None:
    args = decode_args(body)
    requested = [node.name for node in args.nodes] if args.nodes is not None else args.node_names or []
    assert isinstance(answer, list)
    for each in answer:
        assert each.keys() == {"Host", "Score"}
        assert each["Host"] in requested
        assert type(each["Score"]) is int
        assert 0 <= each["Score"] <= 400


def check_candidates(body: bytes, answer: Any) -> None:
    requested = {each.node for each in decode_preemption_args(body).candidates}
    assert answer.keys() == {"NodeNameToMetaVictims"}
    assert answer["NodeNameToMetaVictims"].keys() <= requested
    for victims in answer["NodeNameToMetaVictims"].values():
        assert victims["Pods"]
        assert all(pod.keys() == {"UID"} for pod in victims["Pods"])
        assert type(victims["NumPDBViolations"]) is int


def check_binding(_: bytes, answer: Any) -> None:
    assert answer.keys() == {"Error"}
    assert answer["Error"], "a pod that is not there was bound"


FORMS: Final = {
    "filter": check_filter,
    "prioritize": check_scores,
    "preempt": check_candidates,
    "bind": check_binding,
}


def is_no_http(answer: Answer) -> bool:
    """Whether it ended before it became a request: with a method or a hope that there is not in HTTP."""
    return answer.text.startswith(("Invalid method", "Unknown Expect"))
