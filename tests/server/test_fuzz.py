"""No request, whatever is wrong with it, makes the service fail, hang, answer in another form, or count otherwise."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

import orjson
import pytest
from hypothesis import currently_in_test_context, given, note
from hypothesis import settings as bounds
from hypothesis import strategies as st

from extender.wire.extender_v1 import decode_args, decode_preemption_args
from tests.builders import REQUIRED, Json, settings
from tests.server.fuzzing import BODIES, Answer, World, world_of
from tests.server.spoiling import Sent, spoiled_bytes, spoiled_fields, spoiled_requests

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

MANY: Final = 2 * bounds().max_examples  # of the profile in use; a request takes a few milliseconds

Ask = Callable[[Sent], Answer]


@pytest.fixture(scope="module", params=MODES.values(), ids=[*MODES])
def ask(request: pytest.FixtureRequest) -> Iterator[Ask]:
    """Sends a request to a service that serves all tests; at the end it must be as it was at the beginning."""
    with asyncio.Runner() as runner:
        serving = world_of(request.param)
        world: World = runner.run(serving.__aenter__())
        try:
            yield lambda sent: runner.run(world.send(sent))
            runner.run(world.come_to_rest())
            assert world.problems() == []
        finally:
            runner.run(serving.__aexit__(None, None, None))


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
        asked, passed = args.node_names or [], answer["NodeNames"]
        assert answer["Nodes"] is None
    else:
        asked, passed = [node.name for node in args.nodes], names_of(answer)
    assert isinstance(passed, list)
    assert {*passed, *answer["FailedNodes"], *answer["FailedAndUnresolvableNodes"]} <= set(asked)
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
    asked = [node.name for node in args.nodes] if args.nodes is not None else args.node_names or []
    assert isinstance(answer, list)
    for each in answer:
        assert each.keys() == {"Host", "Score"}
        assert each["Host"] in asked
        assert type(each["Score"]) is int
        assert 0 <= each["Score"] <= 400


def check_candidates(body: bytes, answer: Any) -> None:
    asked = {each.node for each in decode_preemption_args(body).candidates}
    assert answer.keys() == {"NodeNameToMetaVictims"}
    assert answer["NodeNameToMetaVictims"].keys() <= asked
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


@pytest.mark.parametrize("verb", BODIES)
def test_a_recorded_request_is_answered(ask: Ask, verb: str) -> None:
    for request in BODIES[verb]:
        body = orjson.dumps(request)
        check(verb, body, ask(Sent("POST", f"/{verb}", body)))


def test_recorded_requests_are_decided_by_the_rules(ask: Ask) -> None:
    """The index holds the pods of the requests, so that the fuzzed ones reach the decision as well."""
    answers = [ask(Sent("POST", "/filter", orjson.dumps(request))).json for request in BODIES["filter"]]
    assert [answer["Error"] for answer in answers if answer["Error"]] == []
    assert any(answer["FailedNodes"] or answer["FailedAndUnresolvableNodes"] for answer in answers)


THOUSANDS: Final = 5000
POD: Final[Json] = {"metadata": {"name": "many", "namespace": "team-a", "uid": "many"}}
NAMES: Final = [f"node-{number}" for number in range(THOUSANDS)]
TERMS: Final = [{"topologyKey": f"example.com/{name}", "labelSelector": {}} for name in NAMES[:500]]
VICTIMS: Final[Json] = {"Pods": [{"UID": f"unknown-{number}"} for number in range(20)], "NumPDBViolations": 1}
LARGE: Final[dict[str, tuple[str, Json]]] = {
    "names": ("filter", {"Pod": POD, "NodeNames": NAMES}),
    "names to score": ("prioritize", {"Pod": POD, "NodeNames": NAMES}),
    "one name, again and again": ("filter", {"Pod": POD, "NodeNames": ["node-1"] * THOUSANDS}),
    "nodes": ("filter", {"Pod": POD, "Nodes": {"items": [{"metadata": {"name": name}} for name in NAMES]}}),
    "candidates": ("preempt", {"Pod": POD, "NodeNameToMetaVictims": dict.fromkeys(NAMES, VICTIMS)}),
    "terms": (
        "filter",
        {"Pod": {**POD, "spec": {"affinity": {"podAntiAffinity": {REQUIRED: TERMS}}}}, "NodeNames": NAMES},
    ),
}


@pytest.mark.parametrize("name", LARGE)
def test_a_request_of_thousands_is_answered(ask: Ask, name: str) -> None:
    verb, request = LARGE[name]
    body = orjson.dumps(request)
    check(verb, body, ask(Sent("POST", f"/{verb}", body)))


@pytest.mark.parametrize("verb", BODIES)
@bounds(max_examples=MANY)
@given(data=st.data())
def test_a_request_with_spoiled_fields_is_answered(ask: Ask, verb: str, data: st.DataObject) -> None:
    body = data.draw(spoiled_fields(BODIES[verb]))
    check(verb, body, ask(Sent("POST", f"/{verb}", body)))


@pytest.mark.parametrize("verb", BODIES)
@given(data=st.data())
def test_a_request_with_spoiled_bytes_is_answered(ask: Ask, verb: str, data: st.DataObject) -> None:
    body = data.draw(spoiled_bytes(BODIES[verb]))
    check(verb, body, ask(Sent("POST", f"/{verb}", body)))


@pytest.mark.parametrize("verb", BODIES)
@given(data=st.data())
def test_a_request_that_is_wrong_about_its_body_is_answered(ask: Ask, verb: str, data: st.DataObject) -> None:
    sent = data.draw(spoiled_requests(f"/{verb}", BODIES[verb]))
    answer = ask(sent)
    note(f"{answer.status} {answer.text[:1000]}")
    assert FAILED not in answer.text
    assert answer.status in {200, 400, 404, 405, 411, 415, 417}
    assert answer.json is not None or is_no_http(answer)


def is_no_http(answer: Answer) -> bool:
    """Whether it ended before it became a request: with a method or a hope that there is not in HTTP."""
    return answer.text.startswith(("Invalid method", "Unknown Expect"))
