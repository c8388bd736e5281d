"""What is written about a rejected pod of one namespace does not wait behind the pods of another."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial

import pytest

from extender.index.claims.nominations import MOST_REJECTED
from extender.model.objects import Pod
from extender.tasks.rejected_pods import RejectedPodWriter, Requeuer
from tests.builders import index_of, namespace, node, pod
from tests.fakes import FakeClock, FakeWriter, running, settle, until
from tests.tasks.rejected_crowd import CROWD, Crowd


@pytest.mark.parametrize("act", [Crowd.nominate, Crowd.requeue, Crowd.requeue_nominated])
async def test_a_write_about_a_pod_is_not_behind_those_of_another_namespace(
    act: Callable[[Crowd], Coroutine[None, None, None]],
) -> None:
    crowd = Crowd()
    async with running(partial(act, crowd)):
        await until(lambda: any("honest" in effect for effect in crowd.writer.effects))
    before = next(place for place, effect in enumerate(crowd.writer.effects) if "honest" in effect)
    assert before < CROWD / 10, "those that were written while the others were queued"


def test_a_crowd_of_rejected_pods_drops_none_of_another_namespace() -> None:
    """What is dropped is not requeued after the change that would help it."""
    index = index_of(node("n1"))
    honest = pod("honest", namespace="shop")
    index.rejected.add(honest, 1)
    for number in range(MOST_REJECTED + 10):
        index.rejected.add(pod(f"noise-{number}", namespace="noise"), 1)
    held = index.rejected.held
    assert (len(held), honest.uid in held, "uid-noise-0" in held) == (MOST_REJECTED, True, False)
    for uid in list(held):
        index.rejected.discard(uid)
    index.rejected.add(honest, 2)
    assert list(index.rejected) == [(honest, 2)]


async def test_a_pod_that_no_node_takes_is_searched_again_only_after_a_change_of_what_it_depends_on() -> None:
    """Else each change of any namespace would cost a search for each of thousands of rejected pods."""
    waits, searched = pod("waits"), list[str]()
    index = index_of(node("n1"), namespace("other"), waits)

    def find(searched_for: Pod) -> tuple[str, bool]:
        searched.append(searched_for.name)
        return "", False

    index.rejected.add(waits, ("as it was then",))
    requeuer = Requeuer(RejectedPodWriter(index, FakeWriter(), find), FakeClock(), 50)
    async with running(requeuer.run):
        await settle()
        for number, searches in enumerate((1, 1, 1, 2, 2)):
            if number == 3:
                index.upsert(node("n2"))
            index.upsert(namespace("other", number=str(number)))
            await settle()
            assert searched == ["waits"] * searches
