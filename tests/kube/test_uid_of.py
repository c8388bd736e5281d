"""A pod's UID read afresh."""

from __future__ import annotations

import json

import pytest

from extender.kube.effects import PodRef
from extender.kube.errors import Unreachable
from extender.kube.session import Session
from extender.kube.writer import Writer
from tests.kube.scripted import ScriptedApi, body, status

POD = PodRef("default", "web", "uid-old")
PATH = "/api/v1/namespaces/default/pods/web"


async def test_it_is_that_of_the_pod_which_has_the_name_now(api: ScriptedApi, session: Session) -> None:
    api.script(PATH, body(json.dumps({"metadata": {"name": "web", "namespace": "default", "uid": "uid-new"}})))
    assert await Writer(session.reads, "extender", "one").uid_of(POD) == "uid-new"


async def test_it_is_empty_where_the_name_means_no_pod(api: ScriptedApi, session: Session) -> None:
    api.script(PATH, status(404))
    assert not await Writer(session.reads, "extender", "one").uid_of(POD)


async def test_an_answer_that_is_no_pod_is_no_answer(api: ScriptedApi, session: Session) -> None:
    api.script(PATH, body(json.dumps({"metadata": {"name": 7}})))
    with pytest.raises(Unreachable, match=r"pods/web"):
        await Writer(session.reads, "extender", "one").uid_of(POD)
