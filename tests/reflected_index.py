"""An index behind the service's own reflectors (``tasks.reflectors``); each list and change is applied when the call returns."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Mapping, Sequence

from extender.index.cluster import ClusterIndex
from extender.kube.reflector import EventHandler
from extender.model.objects import Object
from extender.tasks.reflectors import Reflectors
from tests.fakes import FakeClock, FakeReflector

FIRST = ("namespaces", "nodes")  # the service takes these in before all others
NO_LISTS: Mapping[str, Sequence[Object]] = {}


class HeldReflector(FakeReflector):
    """A reflector whose event handler the test calls."""

    handler: EventHandler[Object]

    async def run(self, event_handler: EventHandler[Object]) -> None:
        self.handler = event_handler


class ReflectedIndex:
    """An index and the reflectors of some kinds of objects. Each kind has been listed once, by default as empty."""

    def __init__(
        self, index: ClusterIndex, kinds: Iterable[str], objects: Mapping[str, Sequence[Object]] = NO_LISTS
    ) -> None:
        self.index = index
        self._fakes = {kind: HeldReflector(kind) for kind in kinds}
        self._reflectors = Reflectors(index, list(self._fakes.values()), FakeClock())
        for _, run in self._reflectors.jobs():
            finish(run())
        for kind in sorted(self._fakes, key=lambda kind: kind not in FIRST):
            self.replace(kind, objects.get(kind, ()))

    def replace(self, kind: str, objects: Sequence[Object]) -> int:
        """A complete list of one kind; returns how many objects a later list has changed."""
        before = self._reflectors.relist_changes()[kind]
        finish(self._fakes[kind].handler.replace({found.key: found for found in objects}))
        return self._reflectors.relist_changes()[kind] - before

    def apply(self, kind: str, found: Object, *, deleted: bool = False) -> None:
        """One change that a watch shows."""
        finish(self._fakes[kind].handler.apply([(found, deleted)]))


def finish(work: Coroutine[None, None, None] | object) -> None:
    """Run a coroutine to its end. It may give way to others, of which there are none; it waits for nothing."""
    assert isinstance(work, Coroutine)
    try:
        while True:
            assert work.send(None) is None, "it waits for something that will not come"
    except StopIteration:
        return
