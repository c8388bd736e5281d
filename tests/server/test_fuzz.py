"""No request, whatever is wrong with it, makes the service fail, hang, answer in another form, or count otherwise."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Final

import orjson
import pytest
from hypothesis import given, note
from hypothesis import settings as bounds
from hypothesis import strategies as st

from tests.builders import REQUIRED, Json
from tests.server.checked_answers import FAILED, MODES, check, is_no_http
from tests.server.fuzzing import BODIES, Answer, World, world_of
from tests.server.spoiling import Sent, spoiled_bytes, spoiled_fields, spoiled_requests

MANY: Final = 2 * bounds().max_examples  # of the profile in use; a request takes a few milliseconds

Send = Callable[[Sent], Answer]


@pytest.fixture(scope="module", params=MODES.values(), ids=[*MODES])
def send(request: pytest.FixtureRequest) -> Iterator[Send]:
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


@pytest.mark.parametrize("verb", BODIES)
def test_a_recorded_request_is_answered(send: Send, verb: str) -> None:
    for request in BODIES[verb]:
        body = orjson.dumps(request)
        check(verb, body, send(Sent("POST", f"/{verb}", body)))


def test_recorded_requests_are_decided_by_the_rules(send: Send) -> None:
    """The index holds the pods of the requests, so that the fuzzed ones reach the decision as well."""
    answers = [send(Sent("POST", "/filter", orjson.dumps(request))).json for request in BODIES["filter"]]
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
def test_a_request_of_thousands_is_answered(send: Send, name: str) -> None:
    verb, request = LARGE[name]
    body = orjson.dumps(request)
    check(verb, body, send(Sent("POST", f"/{verb}", body)))


@pytest.mark.parametrize("verb", BODIES)
@bounds(max_examples=MANY)
@given(data=st.data())
def test_a_request_with_spoiled_fields_is_answered(send: Send, verb: str, data: st.DataObject) -> None:
    body = data.draw(spoiled_fields(BODIES[verb]))
    check(verb, body, send(Sent("POST", f"/{verb}", body)))


@pytest.mark.parametrize("verb", BODIES)
@given(data=st.data())
def test_a_request_with_spoiled_bytes_is_answered(send: Send, verb: str, data: st.DataObject) -> None:
    body = data.draw(spoiled_bytes(BODIES[verb]))
    check(verb, body, send(Sent("POST", f"/{verb}", body)))


@pytest.mark.parametrize("verb", BODIES)
@given(data=st.data())
def test_a_request_that_is_wrong_about_its_body_is_answered(send: Send, verb: str, data: st.DataObject) -> None:
    sent = data.draw(spoiled_requests(f"/{verb}", BODIES[verb]))
    answer = send(sent)
    note(f"{answer.status} {answer.text[:1000]}")
    assert FAILED not in answer.text
    assert answer.status in {200, 400, 404, 405, 411, 415, 417}
    assert answer.json is not None or is_no_http(answer)
