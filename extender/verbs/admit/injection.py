"""Applies the directives of policies to the scheduling fields of a pod, one policy after the other, and records what each did.

1. The pod lacks the field: the policy adds its value. A default that the API server filled in counts as lacking.
2. The pod has another value: a conflict. The policy's `conflictPolicy` decides.
3. A limit leaves no room for a directive: the policy's `failurePolicy` decides.

Applying the same policies again changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from extender.model.constraints.directed import DirectedConstraint
from extender.model.constraints.spread import SpreadConstraint
from extender.model.objects import DEFAULT_SCHEDULER
from extender.model.policies import (
    PLAIN_SCALARS,
    ConflictPolicy,
    Directives,
    FailurePolicy,
    InjectedItem,
    Items,
    Mode,
    Moment,
    Policy,
    PolicyKey,
    Size,
)
from extender.verbs.admit.pod_fields import (
    GATES,
    Bounds,
    Changes,
    FieldConflict,
    NodeDirectives,
    PodFields,
    RejectedError,
    have,
    short,
)
from extender.verbs.admit.spread_directives import NO_COMPLETIONS, NewPod, complete, completed
from extender.wire.policies.node_terms import (
    LISTS,
    NODE_TERMS,
    PLACING_LISTS,
    SPREAD,
    TOLERATIONS,
    item_key,
)

T = TypeVar("T")

# The tolerations that the admission plugin DefaultTolerationSeconds adds to a pod that does not tolerate these taints itself:
# https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#defaulttolerationseconds
_DEFAULT_TAINTS: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_DEFAULT_TOLERATIONS: Final = {
    item_key(TOLERATIONS, {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}): key
    for key in _DEFAULT_TAINTS
}


class Injection:
    """Policies that are applied to the fields of one pod.

    - ``fields``: of a pod under review or of an existing pod, see `PodFields`.
    - ``is_pod``: the fields are a pod's and not a template's, so the API server has filled in defaults.
    - ``scheduler_seed``: chooses among several scheduler names.
    - ``gates``: the policies whose gate is to hold the pod until its pod group is released.
    - ``new``: how policies complete the spread constraints of a new pod.

    Each policy costs O(its directives).
    """

    def __init__(
        self,
        fields: PodFields,
        *,
        is_pod: bool,
        scheduler_seed: int = 0,
        gates: Container[PolicyKey] = (),
        new: NewPod = NO_COMPLETIONS,
    ) -> None:
        self._new = new
        self.fields = fields
        self._gates = gates
        self._nodes = NodeDirectives(self.fields)
        self._is_pod = is_pod
        self._seed = scheduler_seed
        self._affordable: dict[PolicyKey, bool] = {}
        self._places: tuple[Any, dict[tuple[str, str], int]] = (None, {})

    def apply(self, policy: Policy, moment: Moment = Moment.ADMISSION) -> Changes:
        """Applies one policy. Raises `RejectedError` where a conflict rejects the pod; then nothing is changed.

        ``moment`` Scheduling: only directives that can hold for a pod that exists.
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
        """The changes that `apply` would make, for a policy in mode Audit. Nothing is changed."""
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
        """Completes the spread constraints of a new pod. Call it after every policy has added its constraints.

        ``is_preview``: only records the changes, for a policy in mode Audit. O(constraints × directives).
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
        if not (directives and self._is_pod and changes.policy.is_injected(is_pod=True)) or fields.excess:
            return
        items, recorded, growth = complete(fields.items(SPREAD), directives, self._new)
        if recorded and fields.fits(growth, SPREAD, changes):
            fields.replace(SPREAD, items)
            changes.added["spread"] = recorded

    def _restore(self, saved: tuple[Any, ...]) -> None:
        self.fields.restore(saved)
        self._nodes.forget_witness()

    def _apply(self, policy: Policy, moment: Moment, changes: Changes) -> None:
        # 1. A pod above a limit gets only unlimited directives. 2. A policy beyond the budget gets nothing. 3. At scheduling: directives
        # about nodes. 4. At admission: all directives, and the gate.
        if self.fields.excess and not self.fields.is_unlimited(policy):
            self.fields.leave_out(changes, "spec", self.fields.excess)
        elif not self._is_affordable(policy):
            self.fields.leave_out(
                changes, "spec", "the policies before it use up the directives that one admission applies"
            )
        elif moment is Moment.SCHEDULING:
            self._place(policy.directives, PLACING_LISTS, changes)
        else:
            if policy.is_injected(is_pod=self._is_pod):
                self._place(policy.directives, LISTS, changes)
                self._complete(policy.directives, changes)
            # The creator of the pod has set its node: the pod bypasses the scheduler, so no gate. Where a *policy* set the node,
            # it contradicts the policy with the gate, and `_add_gates` records the conflict.
            is_on_a_node = self.fields.scalars["nodeName"] and "nodeName" not in self.fields.claims
            if policy.key in self._gates and policy.release is not None and not is_on_a_node:
                self._add_gates((policy.release.gate,), changes)

    def _place(self, directives: Directives, lists: Collection[str], changes: Changes) -> None:
        """Applies the directives about nodes, which can hold for a pod that exists too. ``lists``: paths of the lists to apply."""
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
        """Applies the directives that only a new pod can get."""
        if directives.scheduler_names:
            self._set_scheduler(directives.scheduler_names, changes)
        if directives.scheduling_gates:
            self._add_gates(directives.scheduling_gates, changes)
        for name in PLAIN_SCALARS:
            if name in directives.scalars:
                self._set(name, directives.scalars[name][0], changes)

    def _is_affordable(self, policy: Policy) -> bool:
        """Whether the budget allows the policy. A policy is charged once, even if it is applied again."""
        affordable = self._affordable.get(policy.key)
        if affordable is None:
            affordable = self._affordable[policy.key] = self.fields.budget.share(policy.key).spend_directives(
                policy.directives.weight
            )
        return affordable

    # ---- scalar fields

    def _set(self, name: str, wanted: str, changes: Changes, *, unset: tuple[str, ...] = ("",)) -> None:
        # ``unset``: values that count as lacking, such as a default of the API server.
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
        """Sets one of the names. A pod that has one of them already keeps it."""
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
        # The defaults of the admission plugin were added before the webhook ran. For a taint that the policy tolerates they are removed.
        if path == TOLERATIONS and self._is_pod:
            kept = _without_defaults(present, new)
            if len(kept) < len(present):
                changes.replaced[path] = [item.value for item in present if item not in kept]
                fields.replace(path, kept)
        changes.added[path] = [item.value for item in new]
        fields.append(path, new)

    def _add_spread(self, items: Items, changes: Changes) -> None:
        """Adds constraints. A pod has one for each topology key and action, because the API server refuses a second one."""
        fields = self.fields
        present = fields.items(SPREAD)
        if self._places[0] is not present:  # kept for the next policy, because most policies add no constraint
            self._places = present, {_pair(item): number for number, item in enumerate(present)}
        places = self._places[1]
        lacking: list[InjectedItem] = []
        for item in items:
            pair = _pair(item)
            where = f"{SPREAD}[{pair[0]}, {pair[1]}]"
            place = places.get(pair)
            # 1. The pod has it. 2. The pod has none for this key and action. 3. The pod has another one: a conflict.
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
                fields.claim(f"{SPREAD}[{', '.join(_pair(item))}]")
            changes.added[SPREAD] = [item.value for item in new]
            fields.append(SPREAD, new)

    def _is_completed(self, item: InjectedItem, present: Sequence[InjectedItem], place: int | None) -> bool:
        """Whether the pod has the constraint in its completed form: in an earlier review it was added, then completed."""
        if place is None or not self._new.directives:
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
    """What policies did to one object.

    - ``changes``: of policies that enforce; ``audited``: what policies in mode Audit would change.
    - ``failed``: by policy, why it could not be applied (an error or a limit).
    - ``refused_by``: the policy that refuses the object, because of ``conflict``, or because it could not be applied. No policy
      is applied after it.
    """

    changes: list[Changes] = field(default_factory=list)
    audited: list[Changes] = field(default_factory=list)
    failed: dict[PolicyKey, str] = field(default_factory=dict)
    refused_by: PolicyKey | None = None
    conflict: FieldConflict | None = None

    def apply(
        self, injection: Injection, policies: Iterable[Policy], moment: Moment = Moment.ADMISSION
    ) -> list[Changes]:
        """Applies policies in order. Returns the changes of each policy that enforces.

        A policy that gave way is applied once more if another policy has overridden the pod, because the pod's value that was in its
        way may be gone. Two kinds of policies are repeated:

        1. A policy that does not override.
        2. A policy that overrides and gave way about node terms. It gives way only to values of policies, and these stay. But which
           node terms can match depends on the pod's node selector too. Example: the pod's zone excludes all terms but one, until
           a later policy overrides the zone.
        """
        applied = [done for policy in policies if (done := self._apply(injection, policy, moment)) is not None]
        conflicting = [done for done in applied if done.conflicts]
        if conflicting and have(conflicting, ConflictPolicy.OVERRIDE):
            for done in conflicting:
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
        """Completes spread constraints last, because a later policy may add the constraint that an earlier one completes."""
        first: dict[PolicyKey, Changes] = {}
        for done in applied:
            first.setdefault(done.policy.key, done)
        for done in first.values():
            self._guarded(done.policy, lambda done=done: injection.complete_spread(done))  # type: ignore[misc]
        for done in self.audited:
            self._guarded(done.policy, lambda done=done: injection.complete_spread(done, is_preview=True))  # type: ignore[misc]

    def within(self, bounds: Bounds, policies: Sequence[Policy]) -> Sequence[Policy]:
        """The policies that are applied to one pod: the first ones. One of the others fails for all: a strict one if there is any."""
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
        """The result of an act of a policy. None where the object is refused, or where the policy cannot be applied."""
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
        """Records that a policy cannot be applied. ``is_strict``: no object may be admitted without it."""
        self.failed[key] = text
        if is_strict:
            self.refused_by = key


def _is_strict(policy: Policy) -> bool:
    return policy.mode is Mode.ENFORCE and policy.failure_policy is FailurePolicy.FAIL


def _pair(item: InjectedItem) -> tuple[str, str]:
    """Topology key and action of a constraint of a policy, of an existing pod, or of a pod under review."""
    constraint = item.element.constraint if isinstance(item.element, DirectedConstraint) else item.element
    if isinstance(constraint, SpreadConstraint):
        return constraint.topology_key, "DoNotSchedule" if constraint.hard else "ScheduleAnyway"
    value: Any = item.value  # of a pod under review, so it can be anything
    read = value.get if isinstance(value, dict) else {}.get
    return str(read("topologyKey")), str(read("whenUnsatisfiable"))


def _without_defaults(present: Sequence[InjectedItem], new: Items) -> list[InjectedItem]:
    """The tolerations, except defaults of the admission plugin for a taint that a new toleration of the policy is about.

    With both the shorter time would count: https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/
    """
    spoken = set(_evictions(new))
    return [item for item in present if _DEFAULT_TOLERATIONS.get(item.key) not in spoken]


def _evictions(items: Items) -> Iterator[str]:
    for item in items:
        if item.value.get("effect") in (None, "", "NoExecute"):
            key = item.value.get("key")
            yield from (key,) if key else _DEFAULT_TAINTS


def gating(policies: Iterable[Policy]) -> Iterator[Policy]:
    """From the policies that select a pod: the policies whose gates count, in order.

    The first policy that enforces releases the pod. Policies before it only audit.
    """
    for policy in policies:
        if Moment.RELEASE in policy.when:
            yield policy
            if policy.mode is Mode.ENFORCE:
                return
