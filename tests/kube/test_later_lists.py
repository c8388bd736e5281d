"""A later list of objects that have not changed takes no memory for them: those that are held are passed on again."""

from __future__ import annotations

import pytest

from extender.kube.watch.decoding import Listed
from extender.kube.watch.reflector_values import WatchOptions
from extender.model.objects import Namespace
from extender.wire.objects.kinds import NAMESPACES
from tests.fakes import until
from tests.kube.conftest import PLAIN, Following
from tests.kube.scripted import ScriptedApi, bookmark, error_event, event, namespace, page, watch

PATH = NAMESPACES.path


@pytest.mark.parametrize("options", [PLAIN, WatchOptions()], ids=["pages", "streaming list"])
async def test_an_equal_object_of_a_later_list_is_the_one_that_is_held(
    api: ScriptedApi, following: Following, options: WatchOptions
) -> None:
    first, later = [namespace("a", 1), namespace("b", 2)], [namespace("a", 1), namespace("b", 3, team="new")]
    gone = error_event(410, "Expired")
    if options is PLAIN:
        api.script(PATH, page(*first, version="2"), watch(gone), page(*later, version="4"), watch())
    else:
        lists = [[*(event("ADDED", each) for each in these), bookmark(4, initial_end=True)] for these in (first, later)]
        api.script(PATH, watch(*lists[0], gone), watch(*lists[1]))
    following.start(options)
    await until(lambda: len(following.sink.lists) == 2)
    before, after = ({found.name: found for found in listed} for listed in following.sink.lists)
    assert after["a"] is before["a"]
    assert after["b"].labels == {"team": "new"}


async def test_a_list_is_emptied_in_parts_and_entirely() -> None:
    listed: Listed[Namespace] = Listed(lambda _key: None)
    for number in range(50):
        listed.add(Namespace(f"n{number}"))
    await listed.release()
    assert listed.objects == {}
