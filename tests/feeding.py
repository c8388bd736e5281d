"""Lists and changes into an index on the service's own path (``tasks.reflectors``), each finished when the call returns."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Mapping, Sequence

from extender.index.cluster import ClusterIndex
from extender.model.objects import Object
from extender.tasks.ports import EventHandler
from extender.tasks.reflectors import Reflectors
from tests.fakes import FakeClock, FakeFeed

FIRST = ("namespaces", "nodes")  # the service takes these in before all others
NO_LISTS: Mapping[str, Sequence[Object]] = {}


class HeldFeed(FakeFeed):
    """A feed that leaves it to the test to call its sink."""

    sink: EventHandler

    async def run(self, sink: EventHandler) -> None:
        """Note the sink."""
        self.sink = sink


class FedIndex:
    """An index and the feeding of some kinds of objects. Each kind has been listed once, by default as empty."""

    def __init__(
        self, index: ClusterIndex, kinds: Iterable[str], objects: Mapping[str, Sequence[Object]] = NO_LISTS
    ) -> None:
        self.index = index
        self._feeds = {kind: HeldFeed(kind) for kind in kinds}
        self._reflectors = Reflectors(index, list(self._feeds.values()), FakeClock())
        for _, run in self._reflectors.jobs():
            finish(run())
        for kind in sorted(self._feeds, key=lambda kind: kind not in FIRST):
            self.replace(kind, objects.get(kind, ()))

    def replace(self, kind: str, objects: Sequence[Object]) -> int:
        """A complete list of one kind; returns how many objects a later list has changed."""
        before = self._reflectors.relist_changes()[kind]
        finish(self._feeds[kind].sink.replace(objects))
        return self._reflectors.relist_changes()[kind] - before

    def apply(self, kind: str, found: Object, *, gone: bool = False) -> None:
        """One change that a watch tells."""
        finish(self._feeds[kind].sink.apply([(found, gone)]))


def finish(work: Coroutine[None, None, None] | object) -> None:
    """Run a coroutine to its end. It may give way to others, of which there are none; it waits for nothing."""
    assert isinstance(work, Coroutine)
    try:
        while True:
            assert work.send(None) is None, "it waits for something that will not come"
    except StopIteration:
        return
