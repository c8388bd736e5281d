"""Applies the directives of policies to the scheduling fields of a pod, one policy after the other, and says what each did.

A policy adds where the pod says nothing; what the API server filled in counts as nothing said. Where both say something else it
is a conflict, which the policy's `conflictPolicy` decides. Where a limit leaves no room for a directive, its `failurePolicy`
decides. Applying the same policies again changes nothing.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import sub
from typing import Any, Final, TypeVar

from extender.model.constraints.clauses import LABEL, Clause, are_contradictory
from extender.model.constraints.node_affinity import NodeAffinity
from extender.model.constraints.spread import SpreadConstraint
from extender.model.policies import (
    ConflictPolicy,
    Directives,
    FailurePolicy,
    InjectedItem,
    Items,
    JsonObject,
    Mode,
    Moment,
    NodeTerm,
    Policy,
    PolicyKey,
    Size,
    Targets,
)
from extender.verbs.admit.pod_fields import GATES, Bounds, Changes, FieldConflict, Held, PodFields, RejectedError, short
from extender.verbs.admit.spread_directives import NO_COMPLETIONS, NewPod, complete, completed
from extender.verbs.admit.term_product import (
    CLAUSES_READ,
    AdmissionBudget,
    JoinedTerm,
    TooManyTermsError,
    impossible_term,
    is_satisfied,
    join,
    policy_terms,
)
from extender.wire.policies.node_terms import (
    LISTS,
    NODE_TERMS,
    PLACING_LISTS,
    SPREAD,
    TOLERATIONS,
    canonical,
    item_key,
)
from extender.wire.policies.policy_validation import limit_name

T = TypeVar("T")

DAEMON_SET: Final = "DaemonSet"
DEFAULT_SCHEDULER: Final = "default-scheduler"

# What the admission plugin DefaultTolerationSeconds gives to a pod that tolerates neither taint by itself:
# https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#defaulttolerationseconds
_DEFAULT_TAINTS: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_DEFAULT_TOLERATIONS: Final = {
    item_key(TOLERATIONS, {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}): key
    for key in _DEFAULT_TAINTS
}


class Injection:
    """The fields of one pod while policies are applied to them. The spec that it is given is never changed.

    ``is_pod``: it is that of a pod and not of a template, so the API server has filled in more. ``scheduler_seed``
    chooses among several scheduler names. ``held``: see `PodFields`. ``gates``: the policies whose gate is to hold the pod until
    its group is released. ``new``: how the policies complete the spread constraints of a new pod. Each policy costs O(what it directs).
    """

    def __init__(
        self,
        spec: JsonObject,
        bounds: Bounds,
        budget: AdmissionBudget,
        *,
        is_pod: bool,
        scheduler_seed: int = 0,
        held: Held | None = None,
        gates: Container[PolicyKey] = (),
        new: NewPod = NO_COMPLETIONS,
    ) -> None:
        self._new = new
        self.fields = PodFields(spec, bounds, budget, held)
        self._gates = gates
        self._nodes = _NodeDirectives(self.fields)
        self._is_pod = is_pod
        self._seed = scheduler_seed
        self._affordable: dict[PolicyKey, bool] = {}
        self._places: tuple[Any, dict[tuple[str, str], int]] = (None, {})

    @property
    def spec(self) -> JsonObject:
        """The spec with all that was applied. Parts that were not changed are the same objects as before."""
        return self.fields.spec

    def apply(self, policy: Policy, moment: Moment = Moment.ADMISSION) -> Changes:
        """Applies one policy. Raises `RejectedError` where a conflict is to reject the pod; then nothing is changed.

        ``moment`` Scheduling: only what can hold for a pod that exists.
        """
        saved = self.fields.save()
        changes = Changes(policy)
        try:
            self._apply(policy, moment, changes)
        except BaseException:
            self._restore(saved)
            raise
        return changes

    def preview(self, policy: Policy, moment: Moment = Moment.ADMISSION) -> Changes:
        """What `apply` would do, without doing it: for policies in mode Audit."""
        saved = self.fields.save()
        changes = Changes(policy)
        try:
            self._apply(policy, moment, changes)
        except RejectedError as error:
            changes.conflicts.append(error.conflict)
        finally:
            self._restore(saved)
        return changes

    def complete_spread(self, changes: Changes, *, is_preview: bool = False) -> None:
        """Completes the spread constraints of a new pod, once every policy has added its own. O(constraints × directives).

        ``is_preview``: only notes it, for a policy in mode Audit.
        """
        saved = self.fields.save() if is_preview else None
        try:
            self._complete_spread(changes)
        finally:
            if saved is not None:
                self._restore(saved)

    def _complete_spread(self, changes: Changes) -> None:
        fields = self.fields
        directives = changes.policy.directives.spread
        if not (directives and self._is_pod and directs(changes.policy, is_pod=True)) or fields.excess:
            return
        items, recorded, growth = complete(fields.items(SPREAD), directives, self._new)
        if recorded and fields.fits(growth, SPREAD, changes):
            fields.replace(SPREAD, items)
            changes.added["spread"] = recorded

    def _restore(self, saved: tuple[Any, ...]) -> None:
        self.fields.restore(saved)
        self._nodes.forget_witness()

    def _apply(self, policy: Policy, moment: Moment, changes: Changes) -> None:
        if self.fields.excess and not self.fields.is_unlimited(policy):
            self.fields.leave_out(changes, "spec", self.fields.excess)
        elif not self._is_affordable(policy):
            self.fields.leave_out(changes, "spec", "the policies before it direct all that one admission applies")
        elif moment is Moment.SCHEDULING:
            self._place(policy.directives, PLACING_LISTS, changes)
        else:
            if directs(policy, is_pod=self._is_pod):
                self._place(policy.directives, LISTS, changes)
                self._complete(policy.directives, changes)
            # Who creates a pod on a node passes the scheduler by; a policy that does it contradicts one that releases.
            is_on_a_node = self.fields.scalars["nodeName"] and "nodeName" not in self.fields.claims
            if policy.key in self._gates and policy.release is not None and not is_on_a_node:
                self._add_gates((policy.release.gate,), changes)

    def _place(self, directives: Directives, lists: Collection[str], changes: Changes) -> None:
        """What decides about nodes, which a pod that exists can be held to as well; of the lists, those given by path."""
        if directives.required_node_terms is not None:
            self._nodes.join_terms(changes)
        for path, items in directives.lists.items():
            if self.fields.excess and path != TOLERATIONS:
                self.fields.leave_out(changes, path, self.fields.excess)
            elif path == SPREAD:
                self._add_spread(items, changes)
            elif path in lists:
                self._add_items(path, items, changes)
        if directives.node_name:
            self._set("nodeName", directives.node_name, changes)
        if directives.node_selector:
            self._nodes.add_node_selector(directives.node_selector, changes)

    def _complete(self, directives: Directives, changes: Changes) -> None:
        """What only a new pod can get."""
        if directives.scheduler_names:
            self._set_scheduler(directives.scheduler_names, changes)
        if directives.scheduling_gates:
            self._add_gates(directives.scheduling_gates, changes)
        if directives.priority_class:
            self._set("priorityClassName", directives.priority_class, changes)

    def _is_affordable(self, policy: Policy) -> bool:
        """Whether the budget allows the policy. Asked once for each: applying one again costs nothing more."""
        affordable = self._affordable.get(policy.key)
        if affordable is None:
            affordable = self._affordable[policy.key] = self.fields.budget.share(policy.key).spend_directives(
                policy.directives.weight
            )
        return affordable

    # ---- scalar fields

    def _set(self, name: str, wanted: str, changes: Changes, *, unset: tuple[str, ...] = ("",)) -> None:
        fields = self.fields
        present = fields.scalars[name]
        if present == wanted:
            fields.claim(name)
            return
        if name == "nodeName" and fields.items(GATES):
            fields.conflict(changes, name, "the API server refuses a node name in a pod with scheduling gates")
            return
        if present not in unset:
            message = f'the pod has "{short(present)}", the policy "{short(wanted)}"'
            if fields.conflict(changes, name, message) is not ConflictPolicy.OVERRIDE:
                return
        if present:
            changes.replaced[name] = present
        changes.added[name] = wanted
        fields.claim(name)
        fields.set_scalar(name, wanted)

    def _set_scheduler(self, names: tuple[str, ...], changes: Changes) -> None:
        """One of the names; a pod that has one of them already keeps it."""
        present = self.fields.scalars["schedulerName"]
        wanted = present if present in names else names[self._seed % len(names)]
        unset = ("",) if "schedulerName" in self.fields.claims else ("", DEFAULT_SCHEDULER)
        self._set("schedulerName", wanted, changes, unset=unset)

    # ---- lists

    def _add_items(self, path: str, items: Items, changes: Changes) -> None:
        fields = self.fields
        new = items.without(fields.known(path))
        if not new or not fields.fits(new.size, path, changes, selects_nodes=path == TOLERATIONS):
            return
        present = fields.items(path)
        if path == TOLERATIONS and self._is_pod:
            kept = _without_defaults(present, new)
            if len(kept) < len(present):
                changes.replaced[path] = [item.value for item in present if item not in kept]
                fields.replace(path, kept)
        changes.added[path] = [item.value for item in new]
        fields.append(path, new)

    def _add_spread(self, items: Items, changes: Changes) -> None:
        """A pod has one constraint for each topology key and action: the API refuses a second one."""
        fields = self.fields
        present = fields.items(SPREAD)
        if self._places[0] is not present:  # for the next policy as well, which mostly adds none
            self._places = present, {_pair(item.value): number for number, item in enumerate(present)}
        places = self._places[1]
        lacking: list[InjectedItem] = []
        for item in items:
            pair = _pair(item.value)
            where = f"{SPREAD}[{pair[0]}, {pair[1]}]"
            place = places.get(pair)
            if item.key in fields.known(SPREAD) or self._is_completed(item, present, place):
                fields.claim(where)
            elif place is None:
                lacking.append(item)
            elif self._overrides(where, changes):
                fields.claim(where)
                present = fields.items(SPREAD)
                pairs = changes.replaced.setdefault(SPREAD, [])
                pairs.append([item.value, present[place].value])
                fields.replace(SPREAD, [*present[:place], item, *present[place + 1 :]])
        new = Items(lacking)
        if new and fields.fits(new.size, SPREAD, changes):
            for item in new:
                fields.claim(f"{SPREAD}[{', '.join(_pair(item.value))}]")
            changes.added[SPREAD] = [item.value for item in new]
            fields.append(SPREAD, new)

    def _is_completed(self, item: InjectedItem, present: Sequence[InjectedItem], place: int | None) -> bool:
        """Whether the pod has the constraint as it is completed for a new pod, which happens after it was added."""
        if place is None or not self._new.directives or not isinstance(item.value, dict):
            return False
        return item_key(SPREAD, completed(item.value, self._new)) == present[place].key

    def _overrides(self, where: str, changes: Changes) -> bool:
        message = "the pod has another constraint for this topology key and action"
        return self.fields.conflict(changes, where, message) is ConflictPolicy.OVERRIDE

    def _add_gates(self, names: tuple[str, ...], changes: Changes) -> None:
        known = self.fields.known(GATES)
        new = [InjectedItem({"name": name}, name, Size()) for name in names if name not in known]
        if not new:
            return
        if self.fields.scalars["nodeName"]:
            self.fields.conflict(changes, GATES, "the API server refuses scheduling gates in a pod with a node name")
            return
        changes.added[GATES] = [*changes.added.get(GATES, ()), *(item.value for item in new)]
        self.fields.append(GATES, new)


@dataclass(slots=True)
class InjectionOutcome:
    """What policies did to one object. ``audited``: what those in mode Audit would do. ``failed``: errors by policy.

    ``refused_by`` is the policy that refuses the object, for ``conflict`` or, without one, because it cannot be applied: because
    of an error or a limit. No policy is applied after it.
    """

    changes: list[Changes] = field(default_factory=list)
    audited: list[Changes] = field(default_factory=list)
    failed: dict[PolicyKey, str] = field(default_factory=dict)
    refused_by: PolicyKey | None = None
    conflict: FieldConflict | None = None

    def apply(
        self, injection: Injection, policies: Iterable[Policy], moment: Moment = Moment.ADMISSION
    ) -> list[Changes]:
        """Applies policies in order. Returns what each that enforces did.

        A policy that gave way is applied once more where a policy has overridden the pod: what stood in its way may be gone.
        A policy that overrides gives way to values of policies alone, which stay. But which node terms are left to choose from
        depends on the pod's node selector too. For example, its zone excludes all terms but one, until a later policy overrides it.
        """
        applied = [done for policy in policies if (done := self._apply(injection, policy, moment)) is not None]
        if any(change.has(ConflictPolicy.OVERRIDE) for change in applied):
            for done in list(applied):
                settled = [conflict for conflict in done.conflicts if conflict.resolution is ConflictPolicy.OVERRIDE]
                gave_way = [
                    conflict for conflict in done.conflicts if conflict.resolution is not ConflictPolicy.OVERRIDE
                ]
                overrides = done.policy.conflict_policy is ConflictPolicy.OVERRIDE
                if any(conflict.field == NODE_TERMS or not overrides for conflict in gave_way):
                    again = self._apply(injection, done.policy, moment)
                    if again is None:
                        continue
                    done.conflicts, again.conflicts = [*settled, *again.conflicts], []
                    applied += [] if again.is_empty else [again]
        if moment is Moment.ADMISSION:
            self._complete_spread(injection, applied)
        return applied

    def _complete_spread(self, injection: Injection, applied: Iterable[Changes]) -> None:
        """What is directed about constraints comes last: they may be those of a policy that applies later."""
        first: dict[PolicyKey, Changes] = {}
        for done in applied:
            first.setdefault(done.policy.key, done)
        for done in first.values():
            self._guarded(done.policy, lambda done=done: injection.complete_spread(done))  # type: ignore[misc]
        for done in self.audited:
            self._guarded(done.policy, lambda done=done: injection.complete_spread(done, is_preview=True))  # type: ignore[misc]

    def within(self, bounds: Bounds, policies: Sequence[Policy]) -> Sequence[Policy]:
        """The policies that are applied to one pod, those that come first. Of the others one fails for all, a strict one if any is."""
        beyond = policies[bounds.max_policies :]
        if beyond:
            strict = next((policy for policy in beyond if _is_strict(policy)), None)
            text = f"{len(policies)} policies are for the pod, policies.maxPerPod is {bounds.max_policies}"
            self.fail((strict or beyond[0]).key, text, is_strict=strict is not None)
        return policies[: bounds.max_policies]

    def _apply(self, injection: Injection, policy: Policy, moment: Moment) -> Changes | None:
        if policy.mode is Mode.ENFORCE:
            return self._guarded(policy, lambda: injection.apply(policy, moment))
        audited = self._guarded(policy, lambda: injection.preview(policy, moment))
        self.audited += [] if audited is None else [audited]
        return None

    def _guarded(self, policy: Policy, act: Callable[[], T]) -> T | None:
        """What an act of a policy returns; None where the object is refused, or the policy cannot be applied."""
        if self.refused_by is not None:
            return None
        try:
            return act()
        except RejectedError as error:
            if error.conflict.resolution is FailurePolicy.FAIL:
                self.fail(policy.key, f"{error.conflict.field}: {error.conflict.message}", is_strict=True)
            else:
                self.refused_by, self.conflict = policy.key, error.conflict
        except Exception as error:  # noqa: BLE001 (the other policies are applied; the policy is named in the answer)
            self.fail(policy.key, f"{type(error).__name__}: {error}", is_strict=_is_strict(policy))
        return None

    def fail(self, key: PolicyKey, text: str, *, is_strict: bool) -> None:
        """Notes that a policy cannot be applied. ``is_strict``: no object may be admitted without it."""
        self.failed[key] = text
        if is_strict:
            self.refused_by = key


def _is_strict(policy: Policy) -> bool:
    return policy.mode is Mode.ENFORCE and policy.failure_policy is FailurePolicy.FAIL


def _pair(constraint: Any) -> tuple[str, str]:
    """Topology key and action, of JSON or of the model."""
    if isinstance(constraint, SpreadConstraint):
        return constraint.topology_key, "DoNotSchedule" if constraint.hard else "ScheduleAnyway"
    read = constraint.get if isinstance(constraint, dict) else {}.get
    return str(read("topologyKey")), str(read("whenUnsatisfiable"))


def _without_defaults(present: Sequence[InjectedItem], new: Items) -> list[InjectedItem]:
    """Tolerations without those of the admission plugin for a taint that a policy's toleration speaks of.

    Both together would count as the shorter time: https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/
    """
    spoken = set(_evictions(new))
    return [item for item in present if _DEFAULT_TOLERATIONS.get(item.key) not in spoken]


def _evictions(items: Items) -> Iterator[str]:
    for item in items:
        if item.value.get("effect") in (None, "", "NoExecute"):
            key = item.value.get("key")
            yield from (key,) if key else _DEFAULT_TAINTS


class _NodeDirectives:
    """The part of an injection that decides on which nodes a pod may run."""

    def __init__(self, fields: PodFields) -> None:
        self._fields = fields
        self._witness: int | None = None  # the position of a term that the node selector does not exclude
        self._detection = AdmissionBudget(CLAUSES_READ)

    def forget_witness(self) -> None:
        """After terms or the node selector have become others."""
        self._witness = None

    def add_node_selector(self, pairs: Mapping[str, str], changes: Changes) -> None:
        """Adds the pairs whose keys are missing. A key with another value, or that excludes every node, is a conflict."""
        fields = self._fields
        present = fields.node_selector
        added: dict[str, str] = {}
        merged = ChainMap(added, present)
        for key, value in pairs.items():
            if present.get(key) != value and self._is_to_be_written(key, value, merged, changes):
                added |= {key: value}
        replaced = {key: present[key] for key in added if key in present}
        fresh = {key: value for key, value in added.items() if key not in present}
        size = Size(pod_bytes=len(canonical(fresh)), node_requirements=len(fresh)) if fresh else Size()
        if added and fields.fits(size, "nodeSelector", changes, selects_nodes=True):
            changes.added["nodeSelector"] = added
            if replaced:
                changes.replaced["nodeSelector"] = {**changes.replaced.get("nodeSelector", {}), **replaced}
            fields.node_selector = {**present, **added}
        elif added:
            added, self._witness = {}, None
        for key, value in pairs.items():
            if added.get(key, present.get(key)) == value:
                fields.claim(f"nodeSelector[{key}]")

    def _is_to_be_written(self, key: str, value: str, present: Mapping[str, str], changes: Changes) -> bool:
        """Whether a pair that is missing, or that has another value, is to be written: it is possible, or overrides."""
        if key in present:
            message = f'the pod has "{short(present[key])}", the policy "{short(value)}"'
            if self._fields.conflict(changes, f"nodeSelector[{key}]", message) is not ConflictPolicy.OVERRIDE:
                return False
        if changes.policy.conflict_policy is ConflictPolicy.COMBINE:
            return True
        if not self._detection.left or self._admits(key, value, present):
            return True
        message = f'no required node term of the pod admits {short(key)}="{short(value)}"'
        if self._fields.conflict(changes, NODE_TERMS, message) is not ConflictPolicy.OVERRIDE:
            return False
        self._replace_terms([], changes)
        return True

    def _admits(self, key: str, value: str, present: Mapping[str, str]) -> bool:
        """Whether a required term can still match with one more pair; also where none could without it.

        One term that can match is remembered. Pairs are only added, so a term that was passed over is out for good, and
        all pairs of all policies together cost O(terms + pairs), until the terms change.
        """
        terms = self._fields.terms
        left = {name: text for name, text in present.items() if name != key} if key in present else present
        if self._witness is None or key in present:
            self._witness = self._first_possible(terms, 0, left)
        at = self._witness
        if at == len(terms) or self._is_possible(terms[at], {key: value}, about=key):
            return True
        at = self._first_possible(terms, at + 1, {**left, key: value})
        if at < len(terms):
            self._witness = at
        return at < len(terms)

    def _first_possible(self, terms: list[JoinedTerm], start: int, pairs: Mapping[str, str]) -> int:
        """The position of the first term from a position on that can match together with pairs, else their number."""
        return next((at for at in range(start, len(terms)) if self._is_possible(terms[at], pairs)), len(terms))

    def _is_possible(self, term: JoinedTerm, pairs: Mapping[str, str], about: str = "") -> bool:
        """Whether a node can match a term together with pairs; of the term, only the clauses about one key where it is given.

        Taken for granted once so many clauses have been read that looking on would delay the admission.
        """
        if not self._detection.spend(1 + len(term.clauses)):
            self._detection.left = 0  # for good: what is looked at must not depend on the size of the next term
            return True
        clauses = [clause for clause in term.clauses if clause.key == about] if about else term.clauses
        keys = {clause.key for clause in clauses if clause.source == LABEL} & pairs.keys()
        selected = (Clause(LABEL, key, "In", (str(pairs[key]),)) for key in keys)
        return bool(term.clauses) and not are_contradictory([*clauses, *selected])

    def join_terms(self, changes: Changes) -> None:
        """Requires a node that matches the pod's terms and the policy's. No such node, or too many terms: a conflict."""
        fields, mine = self._fields, self._fields.terms
        theirs = changes.policy.directives.required_node_terms or ()
        try:
            joined, message = self._joined(mine, theirs, changes.policy)
        except TooManyTermsError as error:
            self._hold_apart(changes, str(error))
            return
        if joined is mine and mine:
            fields.claim(NODE_TERMS)
            return
        resolution = fields.conflict(changes, NODE_TERMS, message) if message else ConflictPolicy.COMBINE
        if resolution is ConflictPolicy.OVERRIDE:
            self._override(policy_terms(theirs), changes)
        elif resolution is ConflictPolicy.COMBINE:
            self._replace_terms(joined or impossible_term(mine, theirs), changes)

    def _hold_apart(self, changes: Changes, message: str) -> None:
        """Terms that cannot be joined with those of the pod: a pod that exists is held to both lists, each by itself."""
        fields, policy = self._fields, changes.policy
        if fields.held is None or not fields.is_unlimited(policy):
            fields.leave_out(changes, NODE_TERMS, message)
            return
        nodes = policy.directives.nodes  # its terms are indexed already
        fields.apart = (*fields.apart, NodeAffinity(terms=nodes.terms) if nodes.node_selector else nodes)
        changes.terms_changed = True

    def _joined(
        self, mine: list[JoinedTerm], theirs: Sequence[NodeTerm], policy: Policy
    ) -> tuple[list[JoinedTerm], str]:
        """Both lists joined, and why it is a conflict, empty where it is none. Raises `TooManyTermsError`."""
        fields, bounds = self._fields, self._fields.bounds
        if not fields.reads_terms:
            raise TooManyTermsError(fields.excess)
        most = bounds.limits.node_requirements
        if mine and not fields.is_unlimited(policy) and fields.size.node_requirements >= most:
            if is_satisfied(mine, theirs):
                return mine, ""
            raise TooManyTermsError(f"no further requirement fits, {limit_name('node_requirements')} is {most}")
        joined = join(mine, theirs, bounds.max_terms, fields.budget.share(policy.key)) if mine else policy_terms(theirs)
        if joined is mine or self._can_match(joined) or (mine and not self._can_match(mine)):
            return joined, ""
        return joined, "no node can match the pod's requirements and the policy's"

    def _override(self, terms: list[JoinedTerm], changes: Changes) -> None:
        """Puts a policy's terms in place of the pod's, and takes away the pairs of the pod that exclude all of them."""
        fields = self._fields
        if not self._can_match(terms):
            keys = {part.key for term in terms for part in term.clauses}
            present = fields.node_selector
            left = {k: v for k, v in present.items() if k not in keys or f"nodeSelector[{k}]" in fields.claims}
            if not self._can_match(terms, left):  # policies that apply first exclude them
                return
            changes.replaced["nodeSelector"] = {key: present[key] for key in present if key not in left}
            fields.node_selector, self._witness = left, None
        self._replace_terms(terms, changes)

    def _can_match(self, terms: list[JoinedTerm], pairs: Mapping[str, str] | None = None) -> bool:
        """Whether a node can match one of the terms together with a node selector: that of the pod unless one is given."""
        if pairs is None:
            pairs = self._fields.node_selector
        return any(self._is_possible(term, pairs) for term in terms)

    def _replace_terms(self, terms: list[JoinedTerm], changes: Changes) -> None:
        if above := self._fields.grow(self._growth(terms), changes.policy, selects_nodes=True):
            self._hold_apart(changes, above)
            return
        self._fields.terms, self._witness = terms, None
        self._fields.claim(NODE_TERMS)
        changes.terms_changed = True

    def _growth(self, terms: list[JoinedTerm]) -> Size:
        """How much larger (or smaller) the terms are than those that stand there now."""
        now = Size(*map(sum, zip(Size(), *(term.size for term in self._fields.terms), strict=True)))
        then = Size(*map(sum, zip(Size(), *(term.size for term in terms), strict=True)))
        return Size(*map(sub, then, now))


def gating(policies: Iterable[Policy]) -> Iterator[Policy]:
    """The policies whose gates are considered, of those that select a pod, in their order.

    One policy releases a pod: the first that enforces. Those before it only audit.
    """
    for policy in policies:
        if policy.acts(Moment.RELEASE):
            yield policy
            if policy.mode is Mode.ENFORCE:
                return


def directs(policy: Policy, *, is_pod: bool) -> bool:
    """Whether admission injects what the policy directs into a pod, or into a template."""
    return policy.acts(Moment.ADMISSION) and policy.targets is not (Targets.TEMPLATES if is_pod else Targets.PODS)
