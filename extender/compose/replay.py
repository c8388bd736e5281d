"""Replays a recording: builds an index from the recorded changes, and decides the recorded requests again. Reads no cluster.

Each request is decided in the recorded state: assumed, nominated and bound pods are as recorded, also if the replay has other
settings. So a difference says how the request would have been answered at that moment. It does not say what would have followed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from enum import StrEnum

import msgspec

from extender.compose.foundation import make_index
from extender.index.cluster import ClusterIndex
from extender.index.state import apply_change
from extender.model.changes import Change
from extender.model.objects import Pod, PodSignature
from extender.settings.configuration import Settings, in_pod_of, parse_settings, settings_document
from extender.verbs.filter import FilterVerb
from extender.verbs.offered_nodes import OfferedNodes
from extender.verbs.preempt import decide_preemption
from extender.verbs.prioritize import prioritize_watched
from extender.wire.extender_v1 import PreemptionArgs
from extender.wire.objects.constraints import BYTES_LIMIT, PORTS_LIMIT, excess_parts
from extender.wire.recordings.recording import (
    Question,
    RecordedAnswer,
    RecordingDecoder,
    Start,
    Verb,
    args_of,
    filter_answer,
    preemption_answer,
)
from extender.wire.recordings.redaction import Redactor


class ReplayOutcome(StrEnum):
    """How an answer differs, the gravest first.

    - ``UNKNOWN``: the recording does not have the pod, so the request was not replayed.
    - ``ELSEWHERE``: no recorded node is in the answer.
    - ``NARROWER``: only some recorded nodes are in it.
    - ``WIDER``: all recorded nodes are in it, and others too.
    - ``ORDER``: the same nodes in another order.
    """

    UNKNOWN = "unknown"
    REJECTED = "rejected"
    ELSEWHERE = "elsewhere"
    NARROWER = "narrower"
    PASSED = "passed"
    PREEMPTION = "preemption"
    REASON = "reason"
    WIDER = "wider"
    ORDER = "order"
    SCORES = "scores"


class ReplayDifference(msgspec.Struct, frozen=True):
    """A request with another answer than recorded. ``line``: its line in the file; ``pod``: ``namespace/name``.

    ``why``: the reasons (labels) for which recorded nodes are rejected now. Empty where none is rejected: other nodes were preferred.
    """

    line: int
    verb: Verb
    pod: str
    uid: str
    outcome: ReplayOutcome
    recorded: RecordedAnswer
    replayed: RecordedAnswer
    why: tuple[str, ...] = ()


def outcome_of(recorded: RecordedAnswer, replayed: RecordedAnswer) -> ReplayOutcome:
    """The outcome of two answers that differ. O(nodes of both)."""
    # Each verb has parts of its own, so at most one of the first two comparisons can differ.
    if recorded.scores != replayed.scores:
        return ReplayOutcome.SCORES
    if recorded.victims != replayed.victims:
        return ReplayOutcome.PREEMPTION
    if recorded.passed and replayed.passed:
        return _of_passed(set(recorded.passed), set(replayed.passed))
    if recorded.passed:
        return ReplayOutcome.REJECTED
    if replayed.passed:
        return ReplayOutcome.PASSED
    return ReplayOutcome.PREEMPTION if recorded.plan != replayed.plan else ReplayOutcome.REASON


def _of_passed(recorded: set[str], replayed: set[str]) -> ReplayOutcome:
    if recorded == replayed:
        return ReplayOutcome.ORDER
    if recorded <= replayed:
        return ReplayOutcome.WIDER
    return ReplayOutcome.NARROWER if recorded & replayed else ReplayOutcome.ELSEWHERE


class Replay:
    """One replay.

    - ``asked``: how many requests were replayed; ``changes``: how many changes were applied.
    - ``differences``: the result.
    - ``versions``: the versions of the extender that made the recording; ``recorded``: the settings of its last part.
    - ``pods``: the UIDs of the pods in the requests.
    """

    def __init__(self, settings: Settings | None = None, redactor: Redactor | None = None) -> None:
        """``settings``: None to use the settings of each part of the recording.

        ``redactor``: has the key of a redacted recording. It replaces the names in ``settings`` by the same rules.
        """
        self.asked = 0
        self.changes = 0
        self.differences: list[ReplayDifference] = []
        self.versions: list[str] = []
        self.recorded: Settings | None = None
        self.pods: set[str] = set()
        self._given = settings
        self._redactor = redactor
        self._redacted = False
        # Replaced when the first part begins.
        self._index, self._verb = _parts(settings or Settings())

    def run(self, lines: Iterable[bytes]) -> None:
        """Replays all lines. Raises WireError, or DocumentError for settings that this version does not read."""
        decoder = RecordingDecoder(Settings().limits, self._within_limits)
        for number, line in enumerate(lines, start=1):
            for entry in decoder.decode(line):
                match entry:
                    case Start():  # a new part of the recording: its changes build the index from empty
                        settings = self._settings(entry)
                        # Before the first object of the part: policies are read within these limits.
                        decoder.limits = settings.limits
                        self._redacted = entry.redacted
                        self._index, self._verb = _parts(settings)
                        self.versions.append(entry.version)
                    case Question():
                        self._ask(number, entry)
                    case _:
                        self._apply(entry)

    def _within_limits(self, signature: PodSignature) -> PodSignature:
        """The signature under the limits of the given settings.

        Limits of bytes and ports cannot be replayed: a pod above these was recorded without its constraints.
        """
        if self._given is None or (
            signature.excess is not None and signature.excess.limit in (BYTES_LIMIT, PORTS_LIMIT)
        ):
            return signature
        parts = (
            signature.affinity,
            signature.spread,
            signature.node_affinity,
            signature.preferred_nodes,
            signature.tolerations,
        )
        return replace(signature, excess=excess_parts(*parts, self._given.limits))

    def _settings(self, start: Start) -> Settings:
        self.recorded = parse_settings(start.settings)
        if self._given is None:
            return self.recorded
        given = self._given
        if self._redactor is not None and start.redacted:
            given = parse_settings(self._redactor.settings(settings_document(given)))
        # With the namespaces of the recorded pod, which a file of settings leaves out.
        return in_pod_of(given, self.recorded)

    def _apply(self, change: Change) -> None:
        self.changes += 1
        apply_change(self._index, change)

    def _ask(self, line: int, question: Question) -> None:
        self.asked += 1
        pod = self._index.pods.get(question.pod) if isinstance(question.pod, str) else question.pod
        if pod is None:
            uid = str(question.pod)
            self.differences.append(
                ReplayDifference(line, question.verb, "", uid, ReplayOutcome.UNKNOWN, question.answer, RecordedAnswer())
            )
            return
        self.pods.add(pod.uid)
        recorded, replayed = question.answer, self._answer(question, pod)
        if replayed != recorded:
            outcome, why = outcome_of(recorded, replayed), self._why(question, pod, replayed)
            self.differences.append(
                ReplayDifference(line, question.verb, pod.full_name, pod.uid, outcome, recorded, replayed, why)
            )

    def _why(self, question: Question, pod: Pod, replayed: RecordedAnswer) -> tuple[str, ...]:
        """The reasons that reject the recorded nodes which are missing in the answer. Empty where one of them is not rejected."""
        # Decided again for these nodes alone. If one passes, it was not rejected in the replay either: another node was preferred.
        left_out = [name for name in question.answer.passed if name not in set(replayed.passed)]
        if not left_out or question.nodes is not None:
            return ()
        decision = self._verb.decide(args_of(msgspec.structs.replace(question, names=left_out), pod), question.seed)
        return tuple(sorted(reason.label for reason in decision.result.reasons))

    def _answer(self, question: Question, pod: Pod) -> RecordedAnswer:
        view, settings = self._index.view, self._verb.settings
        match question.verb:
            case "filter":
                # The recording does not have which nodes were seldom offered. So among equals the recorded node is chosen.
                # -1 is no node: it stands for a recorded node that the index does not have.
                self._verb.offered = _AsRecorded({view.known.get(name, -1) for name in question.answer.passed})
                decision = self._verb.decide(args_of(question, pod), question.seed, question.avoid)
                return filter_answer(decision.result, decision.plan, redacted=self._redacted)
            case "prioritize":
                return RecordedAnswer(scores=dict(prioritize_watched(args_of(question, pod), view, settings)))
            case "preempt":
                # The scheduler may offer a victim that was deleted before the recording began.
                for uid in question.deleted:
                    self._index.deleted.add(uid)
                args = PreemptionArgs(pod, list(question.candidates))
                advised = decide_preemption(args, view, settings, question.seed)
                return preemption_answer(advised.candidates, advised.plan)


class _AsRecorded(OfferedNodes):
    """Chooses the node of the recorded answer where it is one of the candidates."""

    __slots__ = ("_recorded",)

    def __init__(self, recorded: set[int]) -> None:
        super().__init__()
        self._recorded = recorded

    def choose(self, candidates: Sequence[int], _offered: Sequence[int], _numbers: int) -> int:
        """The recorded node if it is a candidate, else the first."""
        return next((node for node in candidates if node in self._recorded), candidates[0])


def _parts(settings: Settings) -> tuple[ClusterIndex, FilterVerb]:
    index = make_index(settings)
    return index, FilterVerb(index.view, settings)
