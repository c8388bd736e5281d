"""Records questions, answers and the changes between them in a file, for `extender replay`.

What happens is put into a bounded queue, which costs a request some microseconds. The task encodes the queue in short
slices and has a thread write the file. If the queue is full or the file cannot be written, records are dropped and
counted, and no answer waits: the recording goes on with a new part, which begins with the state of the index at that time.

At 5,000 nodes and 150,000 pods a part begins with 3 to 10 ms of the loop and then 0.7 s in slices. A change of a pod takes
some 50 µs of processor time with all that it costs, a question about 5,000 nodes 2 ms.
"""

from __future__ import annotations

import asyncio
import gzip
import logging
import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct

from extender.index.cluster import ClusterIndex
from extender.index.state import state_of
from extender.kube.timing import Clock
from extender.model.changes import Change, ObjectChange
from extender.model.objects import Pod
from extender.model.policies import PolicyObject
from extender.settings.configuration import Settings, settings_document
from extender.telemetry.logs import RepeatedWarning
from extender.verbs.filter import FilterDecision, FilterVerb
from extender.verbs.preempt import PreemptionDecision
from extender.wire.extender_v1 import ExtenderArgs, PreemptionArgs
from extender.wire.recordings.recording import (
    Question,
    RecordedAnswer,
    RecordingEncoder,
    Start,
    filter_answer,
    preemption_answer,
)
from extender.wire.recordings.redaction import Redactor

_LEVEL: Final = 1  # the names of nodes repeat in every question, so even the fastest level saves nine tenths


class RecordingFile:
    """Appends to ``path``. An earlier file, and a file that `rotate` ends, is kept as ``path`` with ``.1``.

    ``size``: the bytes of the file. After an error the file is cut to its last complete write.
    """

    def __init__(self, path: str) -> None:
        self.size = 0
        self._path = path
        self._is_compressed = path.endswith(".gz")
        self._descriptor: int | None = None

    def rotate(self) -> None:
        """Ends the file; the next piece begins a new one."""
        self.close()
        if os.path.exists(self._path):  # noqa: PTH110 (as the calls below, by descriptor)
            os.replace(self._path, f"{self._path}.1")  # noqa: PTH105 (as above)
        self.size = 0

    def append(self, piece: bytes) -> int:
        """Writes whole lines; a member of its own where the file is compressed. Returns the bytes in the file."""
        if self._is_compressed:
            piece = gzip.compress(piece, _LEVEL)
        if self._descriptor is None:
            # Only the extender's user may read it: it has names and labels of the cluster.
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            self._descriptor = os.open(self._path, flags, 0o600)
            os.ftruncate(self._descriptor, self.size)
        try:
            rest = memoryview(piece)
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        except OSError:
            os.ftruncate(self._descriptor, self.size)
            raise
        self.size += len(piece)
        return len(piece)

    def close(self) -> None:
        """Closes the file, if it is open."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


_LOG = logging.getLogger(__name__)

MOST_WAITING: Final = 100_000  # changes in the queue; some 100 MB if all of it are large questions
_NAMES_OF_A_CHANGE: Final = 40  # node names that take up as much memory as a change
_NAMES_OF_A_NODE: Final = 100  # a whole node has its bytes too
_PAUSE: Final = 0.25
_SLICE: Final = 0.001
_PIECE_BYTES: Final = 2**18
_RETRY_AFTER: Final = 10.0


_Entry = Change | Start | Question


class _Asked(Struct, frozen=True, gc=False):
    """A question as it was decided, with its size in node names. A plain value, as thousands of closures cost the garbage collector."""

    names: int
    pod: Pod | str
    args: ExtenderArgs | PreemptionArgs
    decided: FilterDecision | PreemptionDecision | Mapping[str, int]
    seed: int = 0
    avoid: str = ""
    deleted: Sequence[str] = ()

    def question(self, *, redacted: bool) -> Question:
        """The record. O(nodes of the answer)."""
        args, decided, pod = self.args, self.decided, self.pod
        if isinstance(args, PreemptionArgs):
            assert isinstance(decided, PreemptionDecision)  # noqa: S101 (for the type checker)
            answer = preemption_answer(decided.candidates, decided.plan)
            return Question("preempt", pod, answer, candidates=args.candidates, deleted=self.deleted, seed=self.seed)
        names, nodes = args.node_names or (), args.nodes
        if isinstance(decided, FilterDecision):
            answer = filter_answer(decided.result, decided.plan, redacted=redacted)
            return Question("filter", pod, answer, names, nodes, seed=self.seed, avoid=self.avoid)
        assert not isinstance(decided, PreemptionDecision)  # noqa: S101 (for the type checker)
        return Question("prioritize", pod, RecordedAnswer(scores=dict(decided)), names, nodes)


class Recorder:
    """The recording of one service. ``written`` and ``dropped`` count records, ``bytes`` the bytes of the files.

    From its creation on, every change that the index notes is recorded.
    """

    def __init__(
        self,
        index: ClusterIndex,
        settings: Settings,
        clock: Clock,
        now: Callable[[], float],
        version: str,
        redactor: Redactor | None = None,
    ) -> None:
        """``now``: seconds of the Unix epoch, for a reader of the file. ``redactor``: None records names as they are."""
        self.written = 0
        self.dropped = 0
        self.bytes = 0
        self._index = index
        self._settings = settings
        self._clock = clock
        self._now = now
        self._version = version
        self._file = RecordingFile(settings.recorder.path)
        self._redacted = redactor is not None
        self._encoder = RecordingEncoder(None if redactor is None else redactor.line)
        self._queue: deque[Change | _Asked] = deque()
        self._asked_names = 0
        self._share = 0.0
        self._policies: dict[str, PolicyObject] = {}
        self._state: Iterator[_Entry] = iter(())
        self._has_gap = False
        self._is_loading = False  # the gap began before anything was asked in the part, so that nothing is lost
        self._has_asked = False
        self._begins_file = True
        self._rest: Iterator[_Entry] = iter(())  # what a full file gets before the next one begins
        self._is_full = False
        self._lines: list[bytes] = []  # encoded, and not written
        self._is_stopped = False
        self._failed = RepeatedWarning(_LOG, "the recording is interrupted")
        self._begin()
        index.journal.note = self._note

    @property
    def _most_bytes(self) -> int:
        """Of one file; there may be two."""
        return self._settings.recorder.max_bytes // 2

    def results(self) -> dict[str, int]:
        """The number of records by result, for metrics."""
        return {"written": self.written, "dropped": self.dropped}

    def record_filter(self, args: ExtenderArgs, seed: int, avoid: str, decision: FilterDecision) -> None:
        """Records a decision, if it belongs to the sample. O(1); never raises. The same holds for the other verbs."""
        if self._is_sampled():
            self._ask(_Asked(_count(args), self._shown(args.pod), args, decision, seed, avoid))

    def record_prioritize(self, args: ExtenderArgs, scores: Mapping[str, int]) -> None:
        """Records scores. They are about the pod that the watch shows, if it shows one of this name."""
        if self._is_sampled():
            shown = self._index.pods.get(args.pod.uid)
            is_shown = shown is not None and shown.full_name == args.pod.full_name
            self._ask(_Asked(_count(args), args.pod.uid if is_shown else args.pod, args, scores))

    def record_preempt(self, args: PreemptionArgs, seed: int, decision: PreemptionDecision) -> None:
        """Records a decision about candidates. O(victims of the candidates)."""
        if self._is_sampled():
            names = sum(1 + len(candidate.victims) for candidate in args.candidates)
            victims = (victim.uid for candidate in args.candidates for victim in candidate.victims)
            deleted = [uid for uid in victims if uid in self._index.deleted]
            self._ask(_Asked(names, self._shown(args.pod), args, decision, seed, deleted=deleted))

    def _is_sampled(self) -> bool:
        self._share += self._settings.recorder.sampling
        if self._share < 1:
            return False
        self._share -= 1
        return True

    def _shown(self, pod: Pod) -> Pod | str:
        return pod.uid if self._index.pods.get(pod.uid) is pod else pod

    def _ask(self, asked: _Asked) -> None:
        if self._put(asked):
            self._asked_names += asked.names
            self._has_asked = True

    def _note(self, change: Change) -> None:
        if isinstance(change, ObjectChange) and isinstance(change.obj, PolicyObject):
            self._policies.pop(change.obj.key, None)
            if not change.is_deleted:
                self._policies[change.obj.key] = change.obj
        self._put(change)

    def _put(self, entry: Change | _Asked) -> bool:
        # 1. The queue is full before the first question, as when all pods of a cluster are listed: nothing is lost, because the
        #    state at the beginning of the next part has all of it. The queue is dropped, and only questions count as dropped.
        # 2. Full otherwise: from now on records are missing. All further ones are dropped and counted until the next part
        #    begins, because a replay of changes with a gap would be wrong.
        is_full = len(self._queue) + self._asked_names // _NAMES_OF_A_CHANGE >= MOST_WAITING
        if is_full and not (self._has_gap or self._has_asked):
            self._is_loading = True
            self._queue.clear()
        if self._has_gap or is_full:
            self._has_gap = True
            self.dropped += not self._is_loading or isinstance(entry, _Asked)
            return False
        self._queue.append(entry)
        return True

    def _begin(self) -> None:
        """Begins a part: the queue is empty, and from now on nothing is missing. O(objects), without encoding them."""
        start = Start(settings_document(self._settings), self._version, self._now())
        policies = list(self._policies.values())
        self._state = _state(start, policies, state_of(self._index))
        self._has_gap = self._is_loading = self._has_asked = False

    async def run(self) -> None:
        """Writes until cancelled; then writes what is left."""
        try:
            while True:
                await self._clock.sleep(_PAUSE)
                try:
                    await self._write_queue()
                except OSError as error:
                    self._failed.warn(error=str(error))
                    self._drop()
                    await self._clock.sleep(_RETRY_AFTER)
                self._go_on()
        finally:
            self._end()

    def _go_on(self) -> None:
        """Begins a part after a gap, and a new file after a full one."""
        if self._is_stopped:
            return
        if self._file.size >= self._most_bytes:
            self._rest = self._taken(self._queue)
            self._queue = deque()
            self._asked_names = 0
            self._is_full = True
            self._begin()
        elif self._has_gap and not self._queue:
            self._begin()

    def _stop(self) -> None:
        """Ends the recording: the state alone fills a file, and after it there would be no room for any question."""
        _LOG.error("recorder.maxBytes is too small for the state of this cluster: nothing more is recorded")
        self._is_stopped = True
        self._index.journal.note = None
        self._drop()

    async def _write_queue(self) -> None:
        """Writes the end of a full file, the state of a part that has begun, and then the queue. Raises OSError."""
        await self._write(self._rest)
        if self._is_full:
            self._begins_file, self._is_full = True, False
        before = 0 if self._begins_file else self._file.size
        await self._write(self._state)
        if self._file.size - before >= self._most_bytes:
            self._stop()
        await self._write(self._take_all())

    async def _write(self, entries: Iterator[_Entry]) -> None:
        """Encodes in slices, so that requests are answered in between. Raises OSError."""
        size, begun = 0, self._clock.now()
        for entry in entries:
            self._lines.append(self._encoder.encode(entry))
            size += len(self._lines[-1])
            if size >= _PIECE_BYTES:
                await self._append_in_thread()
                size = 0
            if self._clock.now() - begun >= _SLICE:
                await asyncio.sleep(0)
                begun = self._clock.now()
        if self._lines:
            await self._append_in_thread()

    async def _append_in_thread(self) -> None:
        """The loop does not touch the file until the thread has written, even if the task is cancelled meanwhile."""
        lines, self._lines = self._lines, []
        writing = asyncio.ensure_future(asyncio.to_thread(self._append, lines))
        try:
            await asyncio.shield(writing)
        except asyncio.CancelledError:
            await asyncio.wait([writing])
            raise

    def _take_all(self) -> Iterator[_Entry]:
        """What waits, in its order: the end of a full file, and the state of a new part, first."""
        yield from self._rest
        yield from self._state
        yield from self._taken(self._queue)

    def _taken(self, queue: deque[Change | _Asked]) -> Iterator[_Entry]:
        while queue:
            entry = queue.popleft()
            if isinstance(entry, _Asked):
                if queue is self._queue:
                    self._asked_names -= entry.names
                yield entry.question(redacted=self._redacted)
            else:
                yield entry

    def _append(self, lines: list[bytes]) -> None:
        """Runs in a thread."""
        try:
            if self._begins_file:
                self._file.rotate()
                self._begins_file = False
            self.bytes += self._file.append(b"".join(lines))
        except OSError:
            self.dropped += len(lines)
            raise
        self.written += len(lines)

    def _drop(self) -> None:
        """Drops the waiting records, and all records until the next part. The records of a state do not count as dropped."""
        self.dropped += len(self._queue) + len(self._lines) + sum(1 for _ in self._rest)
        self._queue.clear()
        self._lines = []
        self._state = self._rest = iter(())
        self._asked_names = 0
        self._has_gap = True

    def _end(self) -> None:
        """Writes what is left, without letting others run: the process ends."""
        try:
            self._lines += map(self._encoder.encode, self._take_all())
            lines, self._lines = self._lines, []
            if lines:
                self._append(lines)
        except OSError as error:
            self._failed.warn(error=str(error))
            self._drop()
        self._file.close()


def _count(args: ExtenderArgs) -> int:
    """Its size in node names."""
    return len(args.node_names or ()) + _NAMES_OF_A_NODE * len(args.nodes or ())


def _state(start: Start, policies: list[PolicyObject], state: Iterator[Change]) -> Iterator[_Entry]:
    yield start
    yield from map(ObjectChange, policies)
    yield from state


class RecordedFilterVerb(FilterVerb):
    """The filter verb, whose decisions are recorded."""

    def __init__(self, recorder: Recorder, index: ClusterIndex, settings: Settings) -> None:
        super().__init__(index.view, settings)
        self._recorder = recorder

    def decide(self, args: ExtenderArgs, seed: int, avoid: str = "") -> FilterDecision:
        """Decides as the filter verb does. O(1) on top."""
        decision = super().decide(args, seed, avoid)
        self._recorder.record_filter(args, seed, avoid, decision)
        return decision
