"""Whether pods with affinity across namespaces keep the quotas of their namespace: never one over, never one refused below.

Plain objects. A pod counts from the decision of the scheduling loop until its binding fails, or it has finished or is gone.
Judged are quotas whose only scope is CrossNamespacePodAffinity, by their numbers of pods, and `quota.default` of the settings.

1. A decision violates a quota if the counted pods with the new pod exceed every limit that held during the request or at most
   `lag` before it.
2. A refusal is a violation if a place was free even by the extender's highest possible count. That count includes pods that
   ended at most `lag` before the request, and pods whose binding failed and that were not requested since.
3. At the end of a run no refused pod may wait while a place is free.
"""

from typing import Final, NamedTuple

from extender.simulator.apiserver.kinds import NAMESPACES, PODS, RESOURCE_QUOTAS, ServedKind
from extender.simulator.apiserver.store import DELETED, Stored
from extender.simulator.json_objects import JsonObject, is_finished, labels_of, namespace_of, node_of, selects, uid_of
from extender.simulator.oracle.brute_force import (
    AFFINITY,
    ANTI_AFFINITY,
    PluginStatus,
    preferred_pod_terms,
    required_pod_terms,
)
from extender.simulator.oracle.journal import (
    QUOTA_SCOPE,
    FailedBinding,
    Journal,
    JournalDecision,
    Refusal,
    StoreChange,
)
from extender.simulator.oracle.violations import Violation

_NUMBERS: Final = ("pods", "count/pods")
_UNLIMITED: Final = 2**31


class _Limit(NamedTuple):
    """The limit of a namespace, and the time since which it holds."""

    since: float
    pods: int


def is_in_scope(pod: JsonObject) -> bool:
    """Whether a term of any of the four lists names namespaces or selects them."""
    terms = [term for side in (AFFINITY, ANTI_AFFINITY) for term in required_pod_terms(pod, side)]
    terms += [term for side in (AFFINITY, ANTI_AFFINITY) for term in preferred_pod_terms(pod, side)]
    return any(term.get("namespaces") or term.get("namespaceSelector") is not None for term in terms)


def quota_violations(journal: Journal, default: JsonObject, *, lag: float = 0.25) -> list[Violation]:
    """Every violation of a run, in the order of the journal. ``default``: the section `quota.default` of the settings."""
    # Most runs have no quota. For them reading the journal again is saved.
    if not (journal.start.get(RESOURCE_QUOTAS) or default.get("action") == "Deny") and not any(
        isinstance(entry, Refusal) or (isinstance(entry, StoreChange) and entry.kind is RESOURCE_QUOTAS)
        for entry in journal.entries
    ):
        return []
    judge = _Judge(journal, default, lag)
    for entry in journal.judged():
        judge.take(entry)
    judge.end()
    return judge.found


class _Judge:
    """The pods that count, by namespace, and the limits, while the journal is read."""

    def __init__(self, journal: Journal, default: JsonObject, lag: float) -> None:
        self.found: list[Violation] = []
        self._felt = journal.stalls.without_stalls
        self._default = default
        self._lag = lag
        self._quotas: dict[str, dict[str, int]] = {}
        self._labels: dict[str, dict[str, str]] = {}
        self._limits: dict[str, list[_Limit]] = {}
        self._counted: dict[str, dict[str, None]] = {}
        self._ended: dict[str, dict[str, float]] = {}
        self._failed: dict[str, dict[str, None]] = {}
        self._waiting: dict[str, Refusal] = {}
        for kind in (NAMESPACES, RESOURCE_QUOTAS, PODS):
            for stored in journal.start[kind]:
                self._show(kind, stored.key, stored, 0.0)

    def take(self, entry: JournalDecision | FailedBinding | Refusal | StoreChange) -> None:
        """Judges an entry by what is known so far, and applies it."""
        if isinstance(entry, StoreChange):
            change = entry.change
            now = None if change.type == DELETED else change.stored
            self._show(entry.kind, change.stored.key, now, self._felt(change.at), change.previous or change.stored)
        elif isinstance(entry, FailedBinding):
            for home, counted in self._counted.items():
                if entry.uid in counted:
                    del counted[entry.uid]
                    self._failed.setdefault(home, {})[entry.uid] = None
                    break
        elif is_in_scope(entry.pod):
            self._judge(entry)

    def _judge(self, entry: JournalDecision | Refusal) -> None:
        home, since = namespace_of(entry.pod), self._felt(entry.requested_at) - self._lag
        # A new request for a pod ends its earlier assumption.
        self._failed.setdefault(home, {}).pop(entry.uid, None)
        counted = self._counted.setdefault(home, {})
        # A pod that is requested again must not count against itself.
        others = len(counted.keys() - {entry.uid})
        # The quota may have changed during the request. A decision is judged by the highest limit, a refusal by the
        # lowest, so that each has the benefit of the doubt.
        limits = self._limits_since(home, since)
        if isinstance(entry, JournalDecision):
            self._waiting.pop(entry.uid, None)
            if others + 1 > max(limits):
                self._violates(entry, f"{others} pods of {home} count already, its quota is {max(limits)}")
            counted[entry.uid] = None
            return
        self._waiting[entry.uid] = entry
        # The extender may not have seen the end of these pods yet.
        ended = {uid for uid, at in self._ended.get(home, {}).items() if at >= since}
        most = len((counted.keys() | ended | self._failed[home].keys()) - {entry.uid})
        if most < min(limits):
            self._violates(entry, f"at most {most} pods of {home} count, its quota is {min(limits)}")

    def end(self) -> None:
        """Judges the pods that wait when everything has settled."""
        for uid, refusal in self._waiting.items():
            home = namespace_of(refusal.pod)
            others = len(self._counted.get(home, {}).keys() - {uid})
            if others < self._limit(home):
                self._violates(refusal, f"waits while {others} pods of {home} count, its quota is {self._limit(home)}")

    def _violates(self, entry: JournalDecision | Refusal, why: str) -> None:
        self.found.append(Violation(entry, PluginStatus("Unschedulable", why)))

    # -- limits

    def _limits_since(self, home: str, since: float) -> list[int]:
        """The limits that held at this time or later, the present limit last."""
        history = self._limits.get(home, [_Limit(0.0, self._limit(home))])
        first = max((number for number, version in enumerate(history) if version.since <= since), default=0)
        self._limits[home] = history = history[first:]
        return [version.pods for version in history]

    def _limit(self, home: str) -> int:
        quotas = self._quotas.get(home)
        if quotas:
            return min(quotas.values())
        selector = self._default.get("namespaceSelector") or {}
        is_denied = self._default.get("action") == "Deny" and selects(selector, self._labels.get(home, {}))
        return 0 if is_denied else _UNLIMITED

    def _note_limit(self, home: str, at: float) -> None:
        history = self._limits.setdefault(home, [])
        if not history or history[-1].pods != self._limit(home):
            history.append(_Limit(at, self._limit(home)))

    # -- objects

    def _show(
        self, kind: ServedKind, key: str, stored: Stored | None, at: float, previous: Stored | None = None
    ) -> None:
        obj = None if stored is None else stored.read()
        if kind is NAMESPACES:
            self._labels[key] = {} if obj is None else labels_of(obj)
            self._note_limit(key, at)
        elif kind is RESOURCE_QUOTAS:
            home, _, name = key.partition("/")
            number = None if obj is None else _number(obj)
            self._quotas.setdefault(home, {}).pop(name, None)
            if number is not None:
                self._quotas[home][name] = number
            self._note_limit(home, at)
        elif kind is PODS:
            self._show_pod(obj, None if previous is None else previous.read(), at)

    def _show_pod(self, pod: JsonObject | None, previous: JsonObject | None, at: float) -> None:
        known = pod or previous
        if known is None or not is_in_scope(known):
            return
        home, uid = namespace_of(known), uid_of(known)
        counted = self._counted.setdefault(home, {})
        if pod is None or is_finished(pod):
            if uid in counted or uid in self._failed.get(home, {}):
                self._ended.setdefault(home, {})[uid] = at
            counted.pop(uid, None)
            self._failed.get(home, {}).pop(uid, None)
            self._waiting.pop(uid, None)
        elif node_of(pod):
            counted[uid] = None
            self._failed.get(home, {}).pop(uid, None)


def _number(quota: JsonObject) -> int | None:
    """The limit of a quota with the scope on pods; None without the scope. Raises ValueError for a quota that the oracle cannot judge."""
    spec = quota["spec"]
    scopes = [*(spec.get("scopes") or [])]
    scopes += [
        expression["scopeName"] for expression in (spec.get("scopeSelector") or {}).get("matchExpressions") or []
    ]
    if QUOTA_SCOPE not in scopes:
        return None
    hard = spec.get("hard") or {}
    numbers = [int(hard[name]) for name in _NUMBERS if name in hard]
    if set(scopes) != {QUOTA_SCOPE} or len(numbers) != len(hard):
        raise ValueError(f"{quota['metadata']['name']}: a quota with other scopes or resources is not judged")
    return min(numbers, default=None)
