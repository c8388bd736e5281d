"""A move under way, and why controllers get no move for a time: after moves that did not complete, and while they are busy."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import inf
from typing import Final, Protocol

from extender.features.execution.broken import WatchedPods, broken_constraints
from extender.features.execution.moves import Move, replacement_of
from extender.index.claims.reserved import move_key
from extender.index.cluster import ClusterIndex
from extender.index.view import ClusterView
from extender.kube.effects import PodRef
from extender.model.bounded import Steps, at_once
from extender.model.objects import Pod, PodSignature
from extender.model.policies import JsonObject, PolicyKey
from extender.model.release import GroupKey
from extender.rules import catalog
from extender.rules.frames import IndexFrame
from extender.settings.configuration import Settings
from extender.verbs.effective_pod import effective_pod
from extender.verbs.request import worst_case

LONGEST_BLOCK: Final = 3600.0
LONGEST_END: Final = 3600.0  # seconds for which a place is kept while the evicted pod terminates
_NODES_A_STEP: Final = 100
_LONGEST_UNREAD: Final = 10.0


class PodWriter(Protocol):
    """The calls of a mover to the API server."""

    async def read_pod(self, pod: PodRef) -> JsonObject:
        """The pod as it is now. Raises ``NotFound``."""

    async def evict(self, pod: PodRef, grace_seconds: int | None = None) -> None:
        """Evicts exactly this pod. Raises ``OverBudget``."""

    async def write_moves(self, policy: PolicyKey, moves: Sequence[JsonObject]) -> None:
        """Writes `execution.moves` into the status of a policy, and nothing else."""


class Outcome(StrEnum):
    """How a move ended.

    - COMPLETED: the replacement is ready, and the constraint holds for it
    - IN_VAIN: the replacement was bound elsewhere, and the constraint is broken there too
    - REFUSED: a disruption budget forbade the eviction
    - FAILED: the pod was not evicted, because of an error
    - NOT_REPLACED: no new pod of the controller came, for example because it was scaled down
    - NOT_READY: the replacement was not ready in time
    """

    COMPLETED = "completed"
    IN_VAIN = "in_vain"
    REFUSED = "refused"
    FAILED = "failed"
    NOT_REPLACED = "not_replaced"
    NOT_READY = "not_ready"


@dataclass(slots=True)
class UnderWay:
    """A move that has begun.

    - ``left``: until when the evicted pod was there without a replacement. Then the timeouts of the replacement begin
    - ``known``: UIDs of the pods that the controller had before
    - ``replacement``: the UID of the new pod, ``pending``: since when it is known without a node
    - ``is_bound``: the new pod is on a node, so its place is no longer claimed
    - ``read``: when the new pod was read last
    - ``is_bare``: an earlier leader began it, and no pod of the controller shows the constraints of the replacement yet
    """

    move: Move
    watched: WatchedPods
    began: float
    left: float
    known: frozenset[str]
    replacement: str = ""
    pending: float = inf
    is_bound: bool = False
    read: float = -inf
    is_bare: bool = False

    def is_due(self, now: float) -> bool:
        """Whether the new pod is read again: after a tenth of the time that it has taken, at most `_LONGEST_UNREAD`. O(1)."""
        return now - self.read >= min((now - self.left) / 10, _LONGEST_UNREAD)

    def still_passes(self, pod: Pod, view: ClusterView, settings: Settings) -> bool:
        """Whether the new pod, which has no node, passes filter and node fit on its place now. O(clauses)."""
        number = view.known.get(self.move.target)
        if number is None:
            return False
        effective_form = effective_pod(pod, view, settings)
        compiled = view.compiled(effective_form.signature)
        frame = worst_case(IndexFrame(), compiled, view)
        filters = catalog.prepare_filters(effective_form, compiled, view, frame)
        fit = catalog.NODE_FIT.prepare_filter(effective_form, compiled, view, IndexFrame())
        return filters.reason(number) is None and fit.reason(number) is None

    def is_in_vain(self, pod: Pod, view: ClusterView, settings: Settings) -> bool:
        """Whether the new pod is on another node than planned, and something is broken for it there. O(`broken_constraints`)."""
        return pod.node != self.move.target and self.is_broken(pod, view, settings)

    def is_broken(self, pod: Pod, view: ClusterView, settings: Settings) -> bool:
        """Whether something that the policy watches is broken for a pod on its node."""
        number = view.known.get(pod.node)
        if number is None:
            return False
        return bool(at_once(broken_constraints({number: 1}, pod, view, settings, self.watched.spec.constraints)))


@dataclass(frozen=True, slots=True)
class _Block:
    """A controller gets no move until ``until`` is over and ``state`` has changed.

    - ``seconds``: how long the last block after a move was; 0 if there was none
    - ``state``: None if only time counts
    - ``seen``: the UIDs of pods of the controller. A pod that it creates ends the block. None: no pod ends it
    """

    why: str
    until: float
    seconds: float
    state: Hashable = None
    seen: frozenset[str] | None = None


class Blocks:
    """The blocks of controllers, by the key of their moves. Times are monotonic seconds.

    The next block of a controller is twice as long as its last one, because what has failed again and again costs evictions or
    calls. A completed move ends this.
    """

    def __init__(self) -> None:
        self._blocks: dict[GroupKey, _Block] = {}

    def __len__(self) -> int:
        """How many are kept."""
        return len(self._blocks)

    def wait(self, key: GroupKey, why: str, until: float) -> None:
        """The controller is busy for a moment, which says nothing about its moves."""
        known = self._blocks.get(key)
        self._blocks[key] = _Block(why, until, 0.0 if known is None else known.seconds)

    def block(
        self,
        key: GroupKey,
        why: str,
        now: float,
        seconds: float,
        state: Hashable = None,
        *,
        longest: float = LONGEST_BLOCK,
        seen: Collection[str] | None = None,
    ) -> None:
        """A move did not complete. ``seconds``, or twice the last block, up to ``longest``. ``seen``: see `_Block`."""
        known = self._blocks.get(key)
        seconds = max(seconds, min(2 * known.seconds, longest) if known is not None else 0.0)
        self._blocks[key] = _Block(why, now + seconds, seconds, state, None if seen is None else frozenset(seen))

    def end(self, key: GroupKey) -> None:
        """A move completed."""
        self._blocks.pop(key, None)

    def why(self, key: GroupKey, now: float, state_now: Callable[[Hashable], Hashable]) -> str:
        """Why the controller gets no move now; empty if it may. ``state_now``: the present value of a block's state."""
        block = self._blocks.get(key)
        if block is None:
            return ""
        # The time first, because it takes less to compare.
        is_kept = now < block.until or (block.state is not None and state_now(block.state) == block.state)
        return block.why if is_kept else ""

    def awaiting_pods(self) -> Collection[GroupKey]:
        """The controllers whose block ends when they create a pod."""
        return [key for key, block in self._blocks.items() if block.seen is not None]

    def see_pods(self, pods: Mapping[GroupKey, Collection[Pod]]) -> None:
        """Ends the blocks of controllers that have created a pod. O(pods)."""
        for key, there in pods.items():
            block = self._blocks.get(key)
            if block is not None and block.seen is not None and any(pod.uid not in block.seen for pod in there):
                del self._blocks[key]

    def forget(self, now: float, broken: Collection[tuple[str, str]]) -> None:
        """Drops what is over, apart from controllers that have ``broken`` constraints: namespace and value of the key. O(blocks)."""
        self._blocks = {
            key: block
            for key, block in self._blocks.items()
            if (key.namespace, key.value) in broken or now < block.until + block.seconds
        }


def pods_of(keys: Collection[GroupKey], index: ClusterIndex) -> Steps[dict[GroupKey, list[Pod]]]:
    """The pods of controllers. O(signatures + pods on their nodes + pods without a node)."""
    view = index.view
    found: dict[GroupKey, list[Pod]] = {key: [] for key in keys}
    wanted = {(key.namespace, key.value) for key in keys}
    namespaces = {key.namespace for key in keys}

    def is_wanted(signature: PodSignature) -> bool:
        if signature.namespace not in namespaces or (controller := signature.controller) is None:
            return False
        return (signature.namespace, f"{controller.kind}/{controller.name}") in wanted

    for placed in view.placed(None, is_wanted):
        yield
        for at, number in enumerate(list(placed.nodes) if placed is not None else (), start=1):
            if at % _NODES_A_STEP == 0:
                yield
            pods = [pod for pod in view.pods_on(number).values() if placed is not None and placed.are(pod)]
            for pod in pods:
                if (key := move_key(pod)) is not None:
                    found[key].append(index.pods.get(pod.uid, pod))
    for pod in view.unplaced.values():
        key = move_key(pod)
        if key in found and not any(other.uid == pod.uid for other in found[key]):
            found[key].append(pod)
    return found


def pass_alone(moves: Sequence[Move], view: ClusterView, settings: Settings) -> bool:
    """Whether each replacement passes filter on its place while all pods have left and no other replacement has come.

    The last move is about to begin. It may need what an earlier one brings, which may take long, or take away what an earlier one
    needs. Only moves that may concern the last one are asked: moves in its namespace, and moves of pods with affinity. O(moves × clauses).
    """
    last = moves[-1].pod
    asked = [each for each in moves if each.pod.namespace == last.namespace or not each.pod.signature.affinity.is_empty]
    news = [effective_pod(replacement_of(each.pod), view, settings) for each in asked]
    compiled = [view.compiled(new.signature) for new in news]
    with view.trial() as trial:
        trial.take_bound(each.pod for each in moves)
        for move, new, constraints in zip(asked, news, compiled, strict=True):
            number = view.known.get(move.target)
            frame = worst_case(IndexFrame(), constraints, view)
            filters = catalog.prepare_filters(new, constraints, view, frame)
            if number is not None and filters.reason(number) is not None:
                return False
    return True
