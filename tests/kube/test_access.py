"""What the apiserver says of an account; an answer that cannot be read is no answer."""

from __future__ import annotations

import pytest

from extender.kube.diagnosis import AccessReviews
from extender.kube.errors import Unreachable
from extender.kube.session import Session
from tests.kube.scripted import ScriptedApi, body

PATH = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


async def test_it_says_what_is_allowed(api: ScriptedApi, session: Session) -> None:
    api.script(PATH, body('{"status":{"allowed":true}}'), body('{"status":{}}'))
    reviews = AccessReviews(session.reads)
    assert [await reviews.is_allowed("watch", "", "pods", "") for _ in range(2)] == [True, False]


@pytest.mark.parametrize(
    "answer",
    [b"<html>", b'{"status":5}', b'{"status":{"\xff', b'{"status":' + b"[" * 20_000],
    ids=["no JSON", "a wrong type", "no UTF-8", "nested too deeply"],
)
async def test_an_answer_that_cannot_be_read_is_no_answer(api: ScriptedApi, session: Session, answer: bytes) -> None:
    api.script(PATH, body(answer))
    with pytest.raises(Unreachable, match="SelfSubjectAccessReview"):
        await AccessReviews(session.reads).is_allowed("watch", "", "pods", "")
