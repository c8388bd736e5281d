"""Writes the status of each policy: whether it is valid, what contradicts it, how many pods it selects. For the leader.

A condition that changes is reported by an event too.

Pods are counted by signature: the index knows how many pods share one, so all replicas of a workload cost one comparison.
Rounds are cut into slices of `SLICE_SECONDS`, so that requests are not held up. Only differences are written, at most
`WRITES_PER_SECOND`. Policies of kupid have no such status.
https://github.com/kubernetes/community/blob/master/contributors/devel/sig-architecture/api-conventions.md#spec-and-status
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from math import inf, isfinite
from typing import Final

from extender.index.availability import DomainsView
from extender.index.objects.changes import IndexChange
from extender.index.objects.namespaces import Namespaces
from extender.index.policies import PolicyTable
from extender.kube.effects import ObjectEvent, PolicyRef
from extender.kube.errors import KubeError, NotFound
from extender.kube.timing import Clock
from extender.kube.writer import PolicyObjects
from extender.model.objects import PodSignature
from extender.model.policies import GROUP, Exempt, InvalidPolicy, JsonObject, Mode, Moment, Policy, PolicyKey, Subject
from extender.model.release import DomainUse
from extender.model.resources import PODS, Resources, quantity_text
from extender.model.units import counted, rfc3339
from extender.tasks.events import EventLimit, EventRecorder
from extender.verbs.admit.pod_fields import Changes
from extender.verbs.admit.policy_reviews import contradiction_between
from extender.verbs.admit.term_product import AdmissionBudget

_LOG = logging.getLogger(__name__)
ROUND_SECONDS: Final = 10.0
WAIT_SECONDS: Final = 0.5  # between looks at whether the index is complete
SLICE_SECONDS: Final = 0.002  # one look more, at a pair of policies with many node terms, takes less than a millisecond
PAUSE_SECONDS: Final = 0.01  # between slices
WRITES_PER_SECOND: Final = 5
APPLIED_EVERY: Final = timedelta(minutes=1)
MOST_CONFLICTS: Final = 16
MOST_EXCLUDED: Final = 64
EXECUTION_EVERY: Final = 60.0  # between two writes of `execution`, whose numbers change with each move
MOST_OPERATIONS: Final = 700  # for the node terms of two policies, 64 pairs; more are compared by the webhook only, where a policy is written
# The bounds of the CRD.
EVENT_LIMIT: Final = EventLimit(at_once=50, refill=2.0, repeated_after=600.0)
_LONGEST_CONFLICT: Final = 700  # characters; the note of an event has 1 KiB
_LONGEST_FIELD: Final = 512
_LONGEST_MESSAGE: Final = 1024
_LONGEST_PROBLEM: Final = 32_768
_INCOMPLETE: Final = "Incomplete"  # the API server drops a part of what the policy injects


class PolicyStatus:
    """Every replica calls ``record``; only the leader runs ``run``.

    ``pods``: the number of pods by signature.
    ``is_complete``: whether all kinds are listed and current.
    ``uses``: what the pods of a policy use of its domains.
    ``domains``: the excluded domains.
    ``loss``: what the API server drops of the fields that a policy injects, empty for nothing.
    ``execution``: what is broken and moved by policies that act while pods run. Set afterwards, because what moves pods is built
    later. Its `moved` counts from the begin of the term.
    `lastApplied`: the last injection into a pod by any replica (`InjectedPods`), or into a template by this replica.
    `conflicts`: conflicts with pods are known only from admissions that this replica decided since its start.
    """

    def __init__(
        self,
        store: PolicyObjects,
        events: EventRecorder,
        policies: PolicyTable,
        pods: Callable[[], Mapping[PodSignature, int]],
        namespaces: Namespaces,
        exempt: Exempt,
        clock: Clock,
        utc_now: Callable[[], datetime],
        is_complete: Callable[[], bool],
        uses: Callable[[Policy], Sequence[DomainUse]],
        domains: DomainsView,
        loss: Callable[[Policy], str],
    ) -> None:
        self.results: Counter[str] = Counter({"written": 0, "failed": 0})
        self._store = store
        self._events = events
        self._policies = policies
        self._pods = pods
        self._namespaces = namespaces
        self._exempt = exempt
        self._clock = clock
        self._utc_now = utc_now
        self._is_complete = is_complete
        self._uses = uses
        self._domains = domains
        self._loss = loss
        self.execution: Callable[[], Mapping[PolicyKey, JsonObject]] = dict
        self._states: Mapping[PolicyKey, JsonObject] = {}
        self._moved_before: dict[PolicyKey, int] = {}  # this term
        self._execution_written: dict[PolicyKey, float] = {}
        self._applied: dict[PolicyKey, datetime] = {}
        self._disagreements: dict[PolicyKey, dict[tuple[str, str], None]] = {}
        self._contradictions: dict[PolicyKey, dict[PolicyKey, str]] = {}
        self._changed: set[PolicyKey] = set()
        self._present: dict[PolicyKey, tuple[str, JsonObject]] = {}
        self._problem = ""
        self._begun = 0.0  # of the slice
        policies.changes.subscribe(self._note)

    def record(self, changes: Changes) -> None:
        """Keeps what one policy did to an object. O(its conflicts)."""
        key = changes.policy.key
        if self._policies.get(key) is None:
            return  # deleted in between
        if not changes.is_empty:
            self._applied[key] = self._utc_now()
        for conflict in changes.conflicts:
            kept = self._disagreements.setdefault(key, {})
            kept.setdefault((conflict.field[:_LONGEST_FIELD], conflict.message[:_LONGEST_MESSAGE]))
            if len(kept) > MOST_CONFLICTS:
                del kept[next(iter(kept))]

    def note_injected(self, signature: PodSignature, policies: Collection[PolicyKey]) -> None:
        """Records the policies that the annotation of a new pod names as injected. Only policies that select the pod count.

        O(policies).
        """
        subject = self._subject(signature) if self._is_complete() else None  # pods of the first list are old
        for key in policies if subject is not None else ():
            policy = self._policies.get(key)
            if policy is not None and subject is not None and policy.scope.selects(subject):
                self._applied[key] = self._utc_now()

    async def run(self) -> None:
        """Until cancelled. A new leader reads each status once, and writes what differs."""
        self._present.clear()
        self._moved_before.clear()
        self._changed = {policy.key for policy in self._policies}
        while True:
            if not self._is_complete():  # a part of the pods would be a wrong count
                await self._clock.sleep(WAIT_SECONDS)
                continue
            await self.round()
            await self._clock.sleep(ROUND_SECONDS)

    async def round(self) -> None:
        """Counts, compares and writes once. A policy that changes meanwhile is left to the next round."""
        changed, self._changed = self._changed, set()
        await self._compare(changed)
        matched = await self._count()
        self._states = self.execution()
        self._begun = self._clock.now()
        for policy in [*self._policies, *self._policies.invalid()]:
            if policy.key.group != GROUP or policy.key in self._changed:
                continue
            await self._keep(policy, 0 if isinstance(policy, InvalidPolicy) else matched[policy.key])
            await self._give_way()
        known = {policy.key for policy in (*self._policies, *self._policies.invalid())}
        for key in [key for key in self._present if key not in known]:
            del self._present[key]
            self._moved_before.pop(key, None)
            self._execution_written.pop(key, None)
            self._events.forget(key)

    def _note(self, change: IndexChange[Policy]) -> None:
        policy = change.new or change.old
        if policy is None:
            return  # an invalid one, which is neither counted nor compared
        self._disagreements.pop(policy.key, None)  # of an earlier generation
        self._changed.add(policy.key)
        if change.new is None:
            self._applied.pop(policy.key, None)
            if policy.key not in self._contradictions:
                self._changed.discard(policy.key)  # a standby would keep it for ever

    async def _count(self) -> Counter[PolicyKey]:
        """How many pods each policy selects. O(signatures × policies that may select them)."""
        matched: Counter[PolicyKey] = Counter()
        if not len(self._policies):
            return matched
        self._begun = self._clock.now()
        for signature in list(self._pods()):
            pods = self._pods().get(signature, 0)
            subject = self._subject(signature)
            for policy in list(self._policies.candidates(subject)) if pods and subject is not None else ():
                if subject is not None and policy.scope.selects(subject):
                    matched[policy.key] += pods
                await self._give_way()
            await self._give_way()
        return matched

    async def _give_way(self) -> None:
        """Pauses where the slice is over."""
        if self._clock.now() - self._begun >= SLICE_SECONDS:
            await self._clock.sleep(PAUSE_SECONDS)
            self._begun = self._clock.now()

    def _subject(self, signature: PodSignature) -> Subject | None:
        """The values of a pod by which policies select it; None if the pod is exempt from all policies."""
        if self._exempt.covers(signature.namespace, signature.labels):
            return None
        return signature.subject(self._namespaces.labels(signature.namespace))

    async def _compare(self, changed: set[PolicyKey]) -> None:
        """Compares the changed policies with all others. O(changed * policies), in slices."""
        self._begun = self._clock.now()
        for key in changed:
            for other in self._contradictions.pop(key, {}):
                self._contradictions.get(other, {}).pop(key, None)
            policy = self._policies.get(key)
            for second in list(self._policies) if policy is not None else ():
                if (
                    policy is not None
                    and second.key != key
                    and (
                        field := contradiction_between(
                            policy, second, self._namespaces.labels, AdmissionBudget(MOST_OPERATIONS)
                        )
                    )
                ):
                    self._contradictions.setdefault(key, {})[second.key] = field
                    self._contradictions.setdefault(second.key, {})[key] = field
                await self._give_way()

    async def _keep(self, policy: Policy | InvalidPolicy, matched: int) -> None:
        try:
            await self._write(policy, matched)
        except NotFound:
            self._present.pop(policy.key, None)  # deleted in between
        except KubeError as error:
            self._present.pop(policy.key, None)  # perhaps written; it is read again
            self.results["failed"] += 1
            if self._problem != str(error):
                _LOG.warning("the status of a policy cannot be written", extra={"problem": str(error)})
            self._problem = str(error)
        else:
            self._problem = ""

    async def _write(self, policy: Policy | InvalidPolicy, matched: int) -> None:
        # The status is read once and then known: only the leader writes it. A new leader, and an attempt that failed, read it
        # again.
        key = policy.key
        if key not in self._present:
            obj = await self._store.get_policy(key)
            status = obj.get("status") or {}
            if execution := status.get("execution"):  # moves are written by what moves pods, into the same object
                status = status | {"execution": {name: value for name, value in execution.items() if name != "moves"}}
            self._present[key] = str(obj["metadata"].get("uid") or ""), status
            await self._clock.sleep(1 / WRITES_PER_SECOND)
        uid, present = self._present[key]
        wanted = self._wanted(policy, matched, present)
        if all(present.get(name) == value for name, value in wanted.items()):
            return
        await self._store.patch_policy_status(key, uid, wanted)
        self._present[key] = uid, {**present, **wanted}
        if wanted.get("execution") != present.get("execution"):
            self._execution_written[key] = self._clock.now()
        self.results["written"] += 1
        for event in condition_events(key, uid, present, wanted, self._utc_now()):
            self._events.record(event, about=key)
        await self._clock.sleep(1 / WRITES_PER_SECOND)

    def _wanted(self, policy: Policy | InvalidPolicy, matched: int, present: JsonObject) -> JsonObject:
        """The required status. Where only a time would differ from ``present``, it keeps the time of ``present``."""
        conflicts = list(self._conflicts(policy.key))
        if isinstance(policy, InvalidPolicy):
            valid = ("Valid", "False", "Invalid", "; ".join(policy.errors)[:_LONGEST_PROBLEM])
        elif loss := self._loss(policy):
            valid = ("Valid", "True", _INCOMPLETE, f"the policy is not applied as a whole: {loss}")
        else:
            valid = ("Valid", "True", "Valid", "the policy is applied")
        conflicting = ("Conflicting", "False", "NoConflict", "no conflict is known")
        if conflicts:
            conflicting = ("Conflicting", "True", "Conflicts", f"status.conflicts has {len(conflicts)}")
        status: JsonObject = {
            "observedGeneration": policy.generation,
            "conditions": [
                self._condition(condition, policy.generation, present) for condition in (valid, conflicting)
            ],
            "matchedPods": matched,
            "conflicts": conflicts,
        }
        domains = [] if isinstance(policy, InvalidPolicy) else [domain_status(use) for use in self._uses(policy)]
        if domains or present.get("domains"):
            status["domains"] = domains
        excluded = [] if isinstance(policy, InvalidPolicy) else list(excluded_domains(policy, self._domains))
        if excluded or present.get("excludedDomains"):
            status["excludedDomains"] = excluded
        execution = self._execution(policy.key, present.get("execution"))
        if execution != present.get("execution"):
            status["execution"] = execution
        applied = self._applied.get(policy.key)
        if applied is not None and not _is_recent(present.get("lastApplied"), applied):
            status["lastApplied"] = rfc3339(applied)
        return status

    def _execution(self, key: PolicyKey, present: JsonObject | None) -> JsonObject | None:
        """The numbers of a policy that acts while pods run; ``present`` itself if it was written lately."""
        state, now = self._states.get(key), self._clock.now()
        if state is None:
            return None
        before = self._moved_before.setdefault(key, (present or {}).get("moved") or 0)
        if present and now - self._execution_written.get(key, -inf) < EXECUTION_EVERY:
            return present
        return {**state, "moved": before + state["moved"]}

    def _conflicts(self, key: PolicyKey) -> Iterator[JsonObject]:
        conflicts = [
            {"policy": str(other), "field": field, "message": "directs the opposite for pods that both select"}
            for other, field in sorted(self._contradictions.get(key, {}).items())
        ]
        conflicts += [
            {"policy": str(key), "field": field, "message": message}
            for field, message in self._disagreements.get(key, {})
        ]
        yield from conflicts[:MOST_CONFLICTS]

    def _condition(self, wanted: tuple[str, str, str, str], generation: int, present: JsonObject) -> JsonObject:
        kind, status, reason, message = wanted
        before: JsonObject = next(
            (condition for condition in present.get("conditions") or () if condition.get("type") == kind), {}
        )
        since = before.get("lastTransitionTime") if before.get("status") == status else None
        return {
            "type": kind,
            "status": status,
            "observedGeneration": generation,
            "lastTransitionTime": since or rfc3339(self._utc_now()),
            "reason": reason,
            "message": message,
        }


def domain_status(use: DomainUse) -> JsonObject:
    """A domain of a policy: its quota, and what the pods of the policy use of it."""
    document: JsonObject = {"name": use.name, "values": list(use.values), "used": _amounts(use.used)}
    if use.quota:
        document["quota"] = _amounts(use.quota, pods=use.quota.get(PODS))
    return document | ({"mayGrow": True} if use.may_grow else {})


def excluded_domains(policy: Policy, domains: DomainsView) -> Iterator[JsonObject]:
    """The first `MOST_EXCLUDED` domains that the policy excludes from spread constraints now, without the operators' reasons.

    O(directives + domains returned).
    """
    if policy.mode is not Mode.ENFORCE or Moment.SCHEDULING not in policy.when:
        return
    excluded = (
        (directive.topology_key, domain, why)
        for directive in policy.directives.spread
        if directive.excludes_after is not None
        for domain, why in sorted(domains.excluded(directive.topology_key, directive.excludes_after).items())
    )
    for key, domain, why in islice(excluded, MOST_EXCLUDED):
        document = {"topologyKey": key, "domain": domain, "since": _moment(why.since)}
        document["reason"] = "Operator" if why.by else "Unavailable"
        yield document | ({"until": _moment(why.until)} if isfinite(why.until) else {})


def _moment(epoch: float) -> str:
    return rfc3339(datetime.fromtimestamp(epoch, UTC))


def _amounts(amounts: Resources, pods: int | None = -1) -> JsonObject:
    """Amounts as text. ``pods``: a number of pods in place of the number in ``amounts``."""
    most = amounts.get(PODS, 0) if pods == -1 else pods
    resources = {name: quantity_text(name, amount) for name, amount in sorted(amounts.items()) if name != PODS}
    return ({} if most is None else {"pods": most}) | ({"resources": resources} if resources else {})


def _is_recent(written: object, applied: datetime) -> bool:
    """Whether the written time is less than a minute before ``applied``."""
    try:
        at = datetime.fromisoformat(str(written))
    except ValueError:
        return False
    return applied - at < APPLIED_EVERY


def condition_events(
    key: PolicyKey, uid: str, before: JsonObject, after: JsonObject, at: datetime
) -> Iterator[ObjectEvent]:
    """The events of the conditions that have changed from one status to the next."""

    def event(kind: str, reason: str, action: str, note: str) -> ObjectEvent:
        return ObjectEvent(PolicyRef(key, uid), kind, reason, action, note, at)

    old, new = _conditions_of(before), _conditions_of(after)
    was_valid, valid = old.get("Valid", {}).get("status"), new.get("Valid", {})
    if valid.get("status") == "True" and was_valid != "True":
        yield event(
            "Normal", "Applied", "Validating", f"the policy is valid; it selects {counted(after['matchedPods'], 'pod')}"
        )
    elif valid.get("status") == "False" and was_valid != "False":
        yield event("Warning", "Invalid", "Validating", f"the policy is not applied: {valid['message']}")
    if valid.get("reason") == _INCOMPLETE != old.get("Valid", {}).get("reason"):
        yield event("Warning", _INCOMPLETE, "Validating", str(valid["message"]))
    was_conflicting = old.get("Conflicting", {}).get("status")
    conflicting = new.get("Conflicting", {}).get("status")
    if conflicting == "True" and was_conflicting != "True":
        yield event("Warning", "Conflict", "Comparing", _conflicts_text(after["conflicts"]))
    elif conflicting == "False" and was_conflicting == "True":
        yield event("Normal", "ConflictResolved", "Comparing", "no conflict is known any more")


def _conditions_of(status: JsonObject) -> dict[str, JsonObject]:
    return {str(condition.get("type")): condition for condition in status.get("conditions") or ()}


def _conflicts_text(conflicts: list[JsonObject]) -> str:
    first = conflicts[0]
    text = f"{first['policy']}: {first['field']}: {first['message']}"[:_LONGEST_CONFLICT]
    return f"{text}; status.conflicts has {len(conflicts)}" if len(conflicts) > 1 else text
