"""The format of a recording: one JSON object on each line, in the order in which things happened.

A line ``start`` begins a part that can be replayed on its own: it has the format's number, the version and the settings.
After it come the changes that make an empty index equal to the recorded one, then questions with their answers, and the
changes between them. Pods refer to signatures by number, as the replicas of a workload share one, and questions to the
names of nodes, in runs of numbers: kube-scheduler asks about thousands of nodes in nearly the same order each time. Objects
are recorded as decisions read them, not as the API server has them.
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
_ERROR: Final = "error"  # for the text of an error in a redacted recording
_FAILED: Final = ("FailedNodes", "FailedAndUnresolvableNodes")
_REASON_TEXTS: Final = frozenset(reason.text for reason in Reason)


class RecordedAnswer(Struct, frozen=True, rename="camel", omit_defaults=True):
    """What was answered, in a form that two runs can be compared by.

    ``passed`` are the names of nodes that passed filter, best first. ``reasons`` are the labels of why nodes were rejected,
    ``digest`` is a hash of the rejection texts of all nodes. ``plan``: the node of a preemption and then the UIDs of its
    victims. ``scores`` by node are those of prioritize, ``victims`` the UIDs by node of the candidates that preempt answers.
    """

    passed: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    error: str = ""
    digest: str = ""
    plan: tuple[str, ...] = ()
    scores: dict[str, int] = {}
    victims: dict[str, tuple[str, ...]] = {}


def filter_answer(result: FilterResult, plan: PreemptionPlan | None, *, redacted: bool = False) -> RecordedAnswer:
    """What a filter result is compared by. O(rejected nodes).

    ``redacted``: the texts may have names and are not comparable, so nodes are counted by reason instead.
    """
    reasons = tuple(sorted(reason.label for reason in result.reasons))
    if redacted:
        digest = "" if result.passed or result.error else _digest(_nodes_by_reason(result))
        return RecordedAnswer(tuple(result.passed), reasons, _ERROR if result.error else "", digest, _planned(plan))
    digest = "" if result.passed or result.error else _digest(orjson.loads(encode_filter(result)))
    return RecordedAnswer(tuple(result.passed), reasons, result.error, digest, _planned(plan))


def _digest(found: object) -> str:
    body = orjson.dumps(found, option=orjson.OPT_SORT_KEYS)
    return blake2b(body, digest_size=_DIGEST_BYTES).hexdigest()


def _nodes_by_reason(result: FilterResult) -> dict[str, int]:
    """How many nodes have each text of a reason; all other texts are one."""
    failed = orjson.loads(encode_filter(result))
    texts = [text for name in _FAILED for text in (failed.get(name) or {}).values()]
    return Counter(text if text in _REASON_TEXTS else "" for text in texts)


def preemption_answer(candidates: Sequence[Candidate], plan: PreemptionPlan | None) -> RecordedAnswer:
    """What an answer of preempt is compared by. O(victims)."""
    victims = {each.node: tuple(victim.uid for victim in each.victims) for each in candidates}
    return RecordedAnswer(plan=_planned(plan), victims=victims)


def _planned(plan: PreemptionPlan | None) -> tuple[str, ...]:
    return () if plan is None else (plan.node, *(each.uid for each in plan.victims))


FORMAT: Final = 1
Verb = Literal["filter", "prioritize", "preempt"]


class Start(Struct, frozen=True, tag="start", rename="camel"):
    """Begins a part. ``settings`` is the document of them, ``time`` in seconds of the Unix epoch.

    ``redacted``: names are pseudonyms (`wire/recordings/redaction.py`), and answers are compared without texts.
    """

    settings: dict[str, Any]
    version: str = ""
    time: float = 0.0
    format: int = FORMAT
    redacted: bool = False


class Question(Struct, frozen=True):
    """A question and its answer. ``pod`` is the UID if the pod is as the index has it.

    ``nodes`` is set where the request brought its own nodes, else ``names``; preempt has ``candidates`` instead. ``seed`` and
    ``avoid`` as in `FilterVerb.decide`.
    """

    verb: Verb
    pod: Pod | str
    answer: RecordedAnswer
    names: Sequence[str] = ()
    nodes: Sequence[Node] | None = None
    candidates: Sequence[Candidate] = ()
    seed: int = 0
    avoid: str = ""


Entry = Start | Change | Question


def args_of(question: Question, pod: Pod) -> ExtenderArgs:
    """The question as filter and prioritize take it."""
    if question.nodes is not None:
        return ExtenderArgs(pod, nodes=list(question.nodes))
    return ExtenderArgs(pod, node_names=list(question.names))


# What is not recorded of a signature: it belongs to effective pods, which are made anew by each decision.
_UNRECORDED: Final = ("enforced", "shown")
_PARTS: Final = [each for each in dataclasses.fields(PodSignature) if each.name not in _UNRECORDED]
_NAMES: Final = [each.name for each in _PARTS]


def _default(part: dataclasses.Field[Any]) -> Any:
    if part.default_factory is not dataclasses.MISSING:
        return msgspec.field(default_factory=part.default_factory)
    return msgspec.NODEFAULT if part.default is dataclasses.MISSING else part.default


# Derived from the model, so that a new field of it is recorded without a change here.
_HINTS: Final = get_type_hints(PodSignature)
_SignatureJson: Final = msgspec.defstruct(
    "_SignatureJson",
    [(each.name, _HINTS[each.name], _default(each)) for each in _PARTS],
    omit_defaults=True,
    kw_only=True,
)
_POD_FIELDS: Final = msgspec.structs.fields(Pod)
_POD_NAMES: Final = [each.name for each in _POD_FIELDS if each.name != "signature"]
_PodJson: Final = msgspec.defstruct(
    "_PodJson",
    [(each.name, int if each.name == "signature" else each.type, each.default) for each in _POD_FIELDS],
    omit_defaults=True,
    kw_only=True,
)


class _SignatureLine(Struct, tag="signature"):
    id: int
    signature: _SignatureJson  # type: ignore[valid-type]  # made from the model


class _NodeNamesLine(Struct, tag="nodeNames"):
    """Names that come after those of earlier lines; the first of a part has the number 0."""

    names: list[str]


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
    runs: Sequence[int] = ()  # of the names asked about: the first number and how many, the next first number, ...
    passed: Sequence[int] = ()  # the same of those in the answer
    nodes: Sequence[Node] | None = None
    candidates: Sequence[Candidate] = ()
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
    each.__name__: each
    for each in (Node, Namespace, Workload, DisruptionBudget, PodQuota, GroupPlacement, TopologyDomains)
}
_PLAIN_CLAIMS: Final[dict[str, type[Any]]] = {
    each.__name__: each
    for each in (AssumptionEnd, NominationRelease, NominationEnd, Reservation, ReservationEnd, DomainTimes)
}
_POD: Final = "Pod"
_POLICY: Final = "Policy"
# Whose fields a line may have, for a redaction.
LINE_TYPES: Final[tuple[Any, ...]] = (_Line, _PodJson)
OBJECT_AND_CLAIM_TYPES: Final = (*_PLAIN_KINDS.values(), *_PLAIN_CLAIMS.values())


def _no_index(value: object) -> None:
    """What the model derives from other fields is not recorded."""
    if not isinstance(value, TermIndex):
        raise TypeError(f"cannot record a {type(value).__name__}")


class RecordingEncoder:
    """Encodes entries of one part as lines. Knows which signatures the part has already.

    ``redact`` is applied to each line, without its end; None keeps lines as they are.
    """

    def __init__(self, redact: Callable[[bytes], bytes] | None = None) -> None:
        self._redact = redact
        self._encode = msgspec.json.Encoder(enc_hook=_no_index).encode
        self._numbers: WeakKeyDictionary[PodSignature, int] = WeakKeyDictionary()
        self._last = 0
        self._nodes: dict[str, int] = {}

    def encode(self, entry: Entry) -> bytes:
        """One line, and before it that of a signature that is new. Each ends with a newline. O(size)."""
        lines: list[bytes] = []
        if isinstance(entry, Start):
            self._numbers.clear()
            self._nodes.clear()
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
        """The names by their numbers. O(names): 0.3 ms for 5,000."""
        numbers = self._nodes
        new = [name for name in dict.fromkeys(names) if name not in numbers]
        if new:
            numbers.update(zip(new, range(len(numbers), len(numbers) + len(new)), strict=True))
            lines.append(self._encode(_NodeNamesLine(new)))
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
            lines.append(self._encode(_SignatureLine(number, _SignatureJson(**parts))))
        return number


class RecordingDecoder:
    """Decodes the lines of a recording, in order. Policies are read within ``limits``; ``adapt`` is applied to each signature."""

    def __init__(
        self, limits: ConstraintLimits, adapt: Callable[[PodSignature], PodSignature] = lambda found: found
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
        """The entry of a line; nothing for a line that others refer to. Raises ``WireError``."""
        try:
            found = self._lines.decode(line)
            if isinstance(found, Start):
                self._begin(found)
            elif not self._has_begun:
                raise WireError("type", 'expected "start" first')
            if isinstance(found, _SignatureLine):
                parts = {name: getattr(found.signature, name) for name in _NAMES}
                self._signatures[found.id] = self._adapt(PodSignature(**parts))
                return
            if isinstance(found, _NodeNamesLine):
                self._nodes += found.names
                return
            yield self._entry(found)
        except UNREADABLE as error:
            raise from_msgspec(error) from None

    def _begin(self, start: Start) -> None:
        if start.format != FORMAT:
            raise WireError("format", f"expected {FORMAT}, got {start.format}: another version has recorded this")
        self._has_begun = True
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
        found: Change = self._plain[line.kind].decode(line.claim)
        return found

    def _object(self, line: _ObjectLine) -> Object:
        if line.kind == _POD:
            return self._pod(self._pods.decode(line.object))
        if line.kind == _POLICY:
            head = msgspec.json.decode(line.object, type=_PolicyJson)
            kind = policies_within(self.limits, head.kind, head.apiVersion.partition("/")[0])
            return kind.decode_object(bytes(line.object))
        if line.kind not in _PLAIN_KINDS:
            raise WireError("kind", f'"{line.kind}" is unknown')
        found: Object = self._plain[line.kind].decode(line.object)
        return found

    def _pod(self, raw: Any) -> Pod:
        signature = self._signature(raw.signature)
        return Pod(signature=signature, **{name: getattr(raw, name) for name in _POD_NAMES})

    def _signature(self, number: int) -> PodSignature:
        found = self._signatures.get(number)
        if found is None:
            raise WireError("signature", f"no line has the signature {number}")
        return found
