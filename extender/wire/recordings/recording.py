"""The format of a recording: one JSON object on each line, in the order in which things happened.

A line ``start`` begins a part that can be replayed on its own. It has the format's number, the version and the
settings. Then come the changes that make an empty index equal to the recorded one, then questions with their answers,
and the changes between them.

Pods refer to signatures by number, because the replicas of a workload share one. Questions refer to names of nodes, in
runs of numbers, because kube-scheduler asks about thousands of nodes in nearly the same order each time. Objects are
recorded as decisions read them, not as in the API server.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from itertools import zip_longest
from typing import Any, Final, Literal, get_type_hints
from weakref import WeakKeyDictionary

import msgspec
import orjson
from msgspec import Raw, Struct

from extender.model.changes import (
    Assumption,
    AssumptionEnd,
    Change,
    DomainTimes,
    LaterAttempt,
    Nomination,
    NominationEnd,
    NominationRelease,
    ObjectChange,
    PolicyRecheck,
    Reservation,
    ReservationEnd,
)
from extender.model.constraints.node_affinity import TermIndex
from extender.model.group_placements import GroupPlacement
from extender.model.objects import (
    DisruptionBudget,
    Namespace,
    Node,
    Object,
    Pod,
    PodQuota,
    PodSignature,
    TopologyDomains,
    Workload,
)
from extender.model.policies import PolicyObject
from extender.model.preemption import Candidate, PreemptionPlan
from extender.model.rejections import Reason
from extender.settings.limits import ConstraintLimits
from extender.wire.errors import UNREADABLE, WireError, from_msgspec
from extender.wire.extender_v1 import ExtenderArgs, FilterResult, encode_filter
from extender.wire.objects.kinds import policies_within

_DIGEST_BYTES: Final = 8
_ERROR: Final = "error"  # replaces the text of an error in a redacted recording
_FAILED: Final = ("FailedNodes", "FailedAndUnresolvableNodes")
_REASON_TEXTS: Final = frozenset(reason.text for reason in Reason)


class RecordedAnswer(Struct, frozen=True, rename="camel", omit_defaults=True):
    """An answer in a form in which two runs can be compared."""

    # Names of nodes that passed filter, best first.
    passed: tuple[str, ...] = ()
    # Labels of the reasons of rejected nodes.
    reasons: tuple[str, ...] = ()
    error: str = ""
    # A hash of the rejection texts of all nodes.
    digest: str = ""
    # The node of a preemption, then the UIDs of its victims.
    plan: tuple[str, ...] = ()
    # Of prioritize, by node.
    scores: dict[str, int] = {}
    # Of preempt, for each candidate node the UIDs of its victims.
    victims: dict[str, tuple[str, ...]] = {}


def filter_answer(result: FilterResult, plan: PreemptionPlan | None, *, redacted: bool = False) -> RecordedAnswer:
    """The comparable form of a filter result. O(rejected nodes).

    ``redacted``: texts may contain names and are not comparable, so nodes are counted by reason instead.
    """
    reasons = tuple(sorted(reason.label for reason in result.reasons))
    if redacted:
        digest = "" if result.passed or result.error else _digest(_nodes_by_reason(result))
        return RecordedAnswer(tuple(result.passed), reasons, _ERROR if result.error else "", digest, _planned(plan))
    digest = "" if result.passed or result.error else _digest(orjson.loads(encode_filter(result)))
    return RecordedAnswer(tuple(result.passed), reasons, result.error, digest, _planned(plan))


def _digest(answer: object) -> str:
    body = orjson.dumps(answer, option=orjson.OPT_SORT_KEYS)
    return blake2b(body, digest_size=_DIGEST_BYTES).hexdigest()


def _nodes_by_reason(result: FilterResult) -> dict[str, int]:
    """How many nodes have each text of a reason. All other texts count as one."""
    failed = orjson.loads(encode_filter(result))
    texts = [text for name in _FAILED for text in (failed.get(name) or {}).values()]
    return Counter(text if text in _REASON_TEXTS else "" for text in texts)


def preemption_answer(candidates: Sequence[Candidate], plan: PreemptionPlan | None) -> RecordedAnswer:
    """The comparable form of a preempt answer. O(victims)."""
    victims = {candidate.node: tuple(victim.uid for victim in candidate.victims) for candidate in candidates}
    return RecordedAnswer(plan=_planned(plan), victims=victims)


def _planned(plan: PreemptionPlan | None) -> tuple[str, ...]:
    return () if plan is None else (plan.node, *(victim.uid for victim in plan.victims))


FORMAT: Final = 1
Verb = Literal["filter", "prioritize", "preempt"]


class Start(Struct, frozen=True, tag="start", rename="camel"):
    """Begins a part. ``settings``: as a document. ``time``: seconds of the Unix epoch.

    ``redacted``: names are pseudonyms (`wire/recordings/redaction.py`), and answers are compared without texts.
    """

    settings: dict[str, Any]
    version: str = ""
    time: float = 0.0
    format: int = FORMAT
    redacted: bool = False


class Question(Struct, frozen=True):
    """A question and its answer. ``pod`` is the UID if the pod equals the pod in the index.

    ``nodes`` is set if the request contained its own nodes, else ``names``. Preempt has ``candidates`` instead.
    ``seed`` and ``avoid``: as in `FilterVerb.decide`. ``deleted``: UIDs of victims of the candidates that were deleted
    before. The index knows deleted pods by hashes alone, so the state at the begin of a part cannot have them.
    """

    verb: Verb
    pod: Pod | str
    answer: RecordedAnswer
    names: Sequence[str] = ()
    nodes: Sequence[Node] | None = None
    candidates: Sequence[Candidate] = ()
    deleted: Sequence[str] = ()
    seed: int = 0
    avoid: str = ""


Entry = Start | Change | Question


def args_of(question: Question, pod: Pod) -> ExtenderArgs:
    """The question in the form that filter and prioritize read."""
    if question.nodes is not None:
        return ExtenderArgs(pod, nodes=list(question.nodes))
    return ExtenderArgs(pod, node_names=list(question.names))


# Not recorded of a signature, because it belongs to effective pods, which each decision makes anew.
_UNRECORDED: Final = ("enforced", "shown")
_PARTS: Final = [part for part in dataclasses.fields(PodSignature) if part.name not in _UNRECORDED]
_NAMES: Final = [part.name for part in _PARTS]


def _default(part: dataclasses.Field[Any]) -> Any:
    if part.default_factory is not dataclasses.MISSING:
        return msgspec.field(default_factory=part.default_factory)
    return msgspec.NODEFAULT if part.default is dataclasses.MISSING else part.default


# Derived from the model, so that a new field of a model class is recorded without a change here.
_HINTS: Final = get_type_hints(PodSignature)
_SignatureJson: Final = msgspec.defstruct(
    "_SignatureJson",
    [(part.name, _HINTS[part.name], _default(part)) for part in _PARTS],
    omit_defaults=True,
    kw_only=True,
)
_POD_FIELDS: Final = msgspec.structs.fields(Pod)
_POD_NAMES: Final = [part.name for part in _POD_FIELDS if part.name != "signature"]
_PodJson: Final = msgspec.defstruct(
    "_PodJson",
    [(part.name, int if part.name == "signature" else part.type, part.default) for part in _POD_FIELDS],
    omit_defaults=True,
    kw_only=True,
)


class _SignatureLine(Struct, tag="signature"):
    id: int
    signature: _SignatureJson  # type: ignore[valid-type]  # made from the model


class _NodeNamesLine(Struct, tag="nodeNames"):
    """Further names, with the next numbers. The first name of a part has the number 0."""

    names: list[str]


# A policy is recorded as its JSON, because the decoder of the watch reads it again, within its own limits.
class _PolicyJson(Struct):
    apiVersion: str  # noqa: N815 (the API's name)
    kind: str


class _ObjectLine(Struct, tag="object", omit_defaults=True):
    kind: str
    object: Raw
    deleted: bool = False


class _AssumptionLine(Struct, tag="assumed", omit_defaults=True):
    pod: _PodJson  # type: ignore[valid-type]  # made from the model
    nodes: tuple[str, ...]
    doubted: bool = False


class _NominationLine(Struct, tag="nominated"):
    pod: _PodJson  # type: ignore[valid-type]  # made from the model
    node: str
    victims: tuple[str, ...] = ()


class _RecheckLine(Struct, tag="policiesRechecked", omit_defaults=True):
    signature: int
    terminating: bool = False


class _ClaimLine(Struct, tag="claim"):
    kind: str
    claim: Raw


class _QuestionLine(Struct, tag="question", omit_defaults=True):
    verb: Verb
    answer: RecordedAnswer
    uid: str = ""
    pod: Any = None
    runs: Sequence[int] = ()  # of the requested names: first number, how many, next first number, ...
    passed: Sequence[int] = ()  # runs of the passed names
    nodes: Sequence[Node] | None = None
    candidates: Sequence[Candidate] = ()
    deleted: Sequence[str] = ()
    seed: int = 0
    avoid: str = ""


_Line = (
    Start
    | _SignatureLine
    | _NodeNamesLine
    | _ObjectLine
    | _AssumptionLine
    | _NominationLine
    | _RecheckLine
    | _ClaimLine
    | _QuestionLine
)
_QUESTION_NAMES: Final = [name for name in Question.__struct_fields__ if name not in ("pod", "names", "answer")]
_PLAIN_KINDS: Final[dict[str, type[Any]]] = {
    kind.__name__: kind
    for kind in (Node, Namespace, Workload, DisruptionBudget, PodQuota, GroupPlacement, TopologyDomains)
}
_PLAIN_CLAIMS: Final[dict[str, type[Any]]] = {
    kind.__name__: kind
    for kind in (
        AssumptionEnd,
        LaterAttempt,
        NominationRelease,
        NominationEnd,
        Reservation,
        ReservationEnd,
        DomainTimes,
    )
}
_POD: Final = "Pod"
_POLICY: Final = "Policy"
# The classes whose fields a line may have; for redaction.
LINE_TYPES: Final[tuple[Any, ...]] = (_Line, _PodJson)
OBJECT_AND_CLAIM_TYPES: Final = (*_PLAIN_KINDS.values(), *_PLAIN_CLAIMS.values())


def _no_index(value: object) -> None:
    """Refuses values that the model derives from other fields: they are not recorded."""
    if not isinstance(value, TermIndex):
        raise TypeError(f"cannot record a {type(value).__name__}")


class RecordingEncoder:
    """Encodes entries of one part as lines. Knows which signatures the part has already.

    ``redact`` is applied to each line, without its end. None keeps lines as they are.
    """

    def __init__(self, redact: Callable[[bytes], bytes] | None = None) -> None:
        self._redact = redact
        self._encode = msgspec.json.Encoder(enc_hook=_no_index).encode
        # Weak, so that a recording keeps no signature of deleted pods in memory. A signature that comes back gets a
        # new number.
        self._numbers: WeakKeyDictionary[PodSignature, int] = WeakKeyDictionary()
        self._last = 0
        self._nodes: dict[str, int] = {}

    def encode(self, entry: Entry) -> bytes:
        """One line; before it the line of a new signature. Each ends with a newline. O(size)."""
        lines: list[bytes] = []
        if isinstance(entry, Start):
            self._numbers.clear()
            self._nodes.clear()
        # `_line` is evaluated first: it appends the lines to which this line refers.
        lines.append(self._encode(self._line(entry, lines)))
        if self._redact is not None:
            lines = [self._redact(line) for line in lines]
        return b"\n".join(lines) + b"\n"

    def _line(self, entry: Entry, lines: list[bytes]) -> _Line:
        match entry:
            case Start():
                return entry
            case Question():
                uid, pod = (entry.pod, None) if isinstance(entry.pod, str) else ("", self._pod(entry.pod, lines))
                parts = {name: getattr(entry, name) for name in _QUESTION_NAMES}
                runs, passed = self._runs(entry.names, lines), self._runs(entry.answer.passed, lines)
                # Filter may pass thousands of nodes, so these names are written as runs as well.
                answer = msgspec.structs.replace(entry.answer, passed=())
                return _QuestionLine(uid=uid, pod=pod, answer=answer, runs=runs, passed=passed, **parts)
            case ObjectChange():
                return self._object(entry, lines)
            case Assumption():
                return _AssumptionLine(self._pod(entry.pod, lines), entry.nodes, entry.doubted)
            case Nomination():
                return _NominationLine(self._pod(entry.pod, lines), entry.node, entry.victims)
            case PolicyRecheck():
                return _RecheckLine(self._number(entry.signature, lines), entry.terminating)
            case _:
                return _ClaimLine(type(entry).__name__, Raw(self._encode(entry)))

    def _object(self, change: ObjectChange, lines: list[bytes]) -> _ObjectLine:
        obj = change.obj
        if isinstance(obj, Pod):
            return _ObjectLine(_POD, Raw(self._encode(self._pod(obj, lines))), change.is_deleted)
        if isinstance(obj, PolicyObject):
            return _ObjectLine(_POLICY, Raw(orjson.dumps(obj.source)), change.is_deleted)
        return _ObjectLine(type(obj).__name__, Raw(self._encode(obj)), change.is_deleted)

    def _runs(self, names: Sequence[str], lines: list[bytes]) -> list[int]:
        """The names as runs of their numbers. O(names): 0.3 ms for 5,000."""
        numbers = self._nodes
        # New names get the next numbers, in the order of the request, so that equal requests are one run.
        new = [name for name in dict.fromkeys(names) if name not in numbers]
        if new:
            numbers.update(zip(new, range(len(numbers), len(numbers) + len(new)), strict=True))
            lines.append(self._encode(_NodeNamesLine(new)))
        # Example: the numbers 4 5 6 9 become the runs 4 3 9 1.
        runs: list[int] = []
        following = -1
        for number in map(numbers.__getitem__, names):
            if number == following:
                runs[-1] += 1
            else:
                runs += (number, 1)
            following = number + 1
        return runs

    def _pod(self, pod: Pod, lines: list[bytes]) -> Any:
        number = self._number(pod.signature, lines)
        return _PodJson(signature=number, **{name: getattr(pod, name) for name in _POD_NAMES})

    def _number(self, signature: PodSignature, lines: list[bytes]) -> int:
        number = self._numbers.get(signature)
        if number is None:
            self._last += 1
            number = self._numbers[signature] = self._last
            parts = {name: getattr(signature, name) for name in _NAMES}
            # A signature is written once, before the first line that refers to it.
            lines.append(self._encode(_SignatureLine(number, _SignatureJson(**parts))))
        return number


class RecordingDecoder:
    """Decodes the lines of a recording, in order. Policies are read within ``limits``.

    ``adapt`` is applied to each signature.
    """

    def __init__(
        self, limits: ConstraintLimits, adapt: Callable[[PodSignature], PodSignature] = lambda signature: signature
    ) -> None:
        self.limits = limits
        self._adapt = adapt
        self._lines: msgspec.json.Decoder[Any] = msgspec.json.Decoder(_Line)
        self._pods = msgspec.json.Decoder(_PodJson)
        self._plain = {name: msgspec.json.Decoder(kind) for name, kind in (_PLAIN_KINDS | _PLAIN_CLAIMS).items()}
        self._signatures: dict[int, PodSignature] = {}
        self._nodes: list[str] = []
        self._has_begun = False

    def decode(self, line: bytes) -> Iterator[Entry]:
        """The entry of a line; nothing for a line that other lines refer to. Raises ``WireError``."""
        try:
            entry = self._lines.decode(line)
            if isinstance(entry, Start):
                self._begin(entry)
            elif not self._has_begun:
                raise WireError("type", 'expected "start" first')
            if isinstance(entry, _SignatureLine):
                parts = {name: getattr(entry.signature, name) for name in _NAMES}
                self._signatures[entry.id] = self._adapt(PodSignature(**parts))
                return
            if isinstance(entry, _NodeNamesLine):
                self._nodes += entry.names
                return
            yield self._entry(entry)
        except UNREADABLE as error:
            raise from_msgspec(error) from None

    def _begin(self, start: Start) -> None:
        if start.format != FORMAT:
            raise WireError("format", f"expected {FORMAT}, got {start.format}: another version has recorded this")
        self._has_begun = True
        # Numbers count from the beginning of a part, so that each part can be read alone.
        self._signatures.clear()
        self._nodes.clear()

    def _names(self, runs: Sequence[int]) -> list[str]:
        names: list[str] = []
        for first, count in zip_longest(runs[::2], runs[1::2], fillvalue=-1):
            if not 0 <= first <= first + count <= len(self._nodes):
                raise WireError("runs", f"no line has the names {first} to {first + count - 1}")
            names += self._nodes[first : first + count]
        return names

    def _entry(
        self, line: Start | _ObjectLine | _AssumptionLine | _NominationLine | _RecheckLine | _ClaimLine | _QuestionLine
    ) -> Entry:
        match line:
            case _QuestionLine():
                pod = line.uid if line.pod is None else self._pod(msgspec.convert(line.pod, _PodJson))
                parts = {name: getattr(line, name) for name in _QUESTION_NAMES}
                names, passed = self._names(line.runs), tuple(self._names(line.passed))
                answer = msgspec.structs.replace(line.answer, passed=passed)
                return Question(pod=pod, answer=answer, names=names, **parts)
            case _ObjectLine():
                return ObjectChange(self._object(line), line.deleted)
            case _AssumptionLine():
                return Assumption(self._pod(line.pod), line.nodes, line.doubted)
            case _NominationLine():
                return Nomination(self._pod(line.pod), line.node, line.victims)
            case _RecheckLine():
                return PolicyRecheck(self._signature(line.signature), line.terminating)
            case _ClaimLine():
                return self._plain_claim(line)
            case _:
                return line

    def _plain_claim(self, line: _ClaimLine) -> Change:
        if line.kind not in _PLAIN_CLAIMS:
            raise WireError("kind", f'"{line.kind}" is unknown')
        change: Change = self._plain[line.kind].decode(line.claim)
        return change

    def _object(self, line: _ObjectLine) -> Object:
        if line.kind == _POD:
            return self._pod(self._pods.decode(line.object))
        if line.kind == _POLICY:
            head = msgspec.json.decode(line.object, type=_PolicyJson)
            kind = policies_within(self.limits, head.kind, head.apiVersion.partition("/")[0])
            return kind.decode_object(bytes(line.object))
        if line.kind not in _PLAIN_KINDS:
            raise WireError("kind", f'"{line.kind}" is unknown')
        obj: Object = self._plain[line.kind].decode(line.object)
        return obj

    def _pod(self, raw: Any) -> Pod:
        signature = self._signature(raw.signature)
        return Pod(signature=signature, **{name: getattr(raw, name) for name in _POD_NAMES})

    def _signature(self, number: int) -> PodSignature:
        signature = self._signatures.get(number)
        if signature is None:
            raise WireError("signature", f"no line has the signature {number}")
        return signature
