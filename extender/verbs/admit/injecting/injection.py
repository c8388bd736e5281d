"""Injects the directives of policies into a pod spec, one policy after the other, and says what each did.

The spec is plain JSON. A policy adds where the pod says nothing; what the API server filled in counts as nothing said.
Where both say something else it is a conflict, which the policy's `conflictPolicy` decides. Applying the same policies
again changes nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, Final

from extender.model.policies import ConflictPolicy, Directives, Item, Items, JsonObject, Moment, Policy, PolicyKey
from extender.verbs.admit.injecting.budget import Budget
from extender.verbs.admit.injecting.changes import Bounds, Changes, RejectedError, short
from extender.verbs.admit.injecting.node_directives import NodeDirectives
from extender.verbs.admit.injecting.spec_edits import put
from extender.verbs.admit.injecting.spec_state import SpecState
from extender.wire.policies.node_terms import LISTS, PLACING_LISTS, SPREAD, TOLERATIONS, item_key

DEFAULT_SCHEDULER: Final = "default-scheduler"
_GATES: Final = "schedulingGates"

# What the admission plugin DefaultTolerationSeconds gives to a pod that tolerates neither taint by itself:
# https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#defaulttolerationseconds
_DEFAULT_TAINTS: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_DEFAULT_TOLERATIONS: Final = {
    item_key(TOLERATIONS, {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}): key
    for key in _DEFAULT_TAINTS
}


class Injection:
    """One pod spec while policies are applied to it. The spec that it is given is never changed.

    ``is_pod``: it is that of a pod and not of a template, so the API server has filled in more. ``scheduler_seed``
    chooses among several scheduler names. Reading the spec costs O(its scheduling fields) once, each policy O(what it
    directs).
    """

    def __init__(
        self, spec: JsonObject, bounds: Bounds, budget: Budget, *, is_pod: bool, scheduler_seed: int = 0
    ) -> None:
        self._state = SpecState(spec, bounds, budget)
        self._nodes = NodeDirectives(self._state)
        self._is_pod = is_pod
        self._seed = scheduler_seed
        self._affordable: dict[PolicyKey, bool] = {}
        self._places: tuple[Any, dict[tuple[str, str], int]] = (None, {})

    @property
    def spec(self) -> JsonObject:
        """The spec with all that was applied. Parts that were not changed are the same objects as before."""
        return self._state.spec

    @property
    def created(self) -> list[str]:
        """The dotted paths of lists and objects that the spec did not have."""
        return self._state.created

    def terms_record(self) -> JsonObject | None:
        """What happened to the required node terms, for the annotation; None where nothing did."""
        return self._nodes.terms_record()

    def apply(self, policy: Policy, moment: Moment = Moment.ADMISSION) -> Changes:
        """Applies one policy. Raises `RejectedError` where a conflict is to reject the pod; then nothing is changed.

        ``moment`` Release: only the gate that holds the pod until then. Scheduling: only what can hold for a pod that exists.
        """
        saved, saved_nodes = self._state.save(), self._nodes.save()
        changes = Changes(policy)
        try:
            self._apply(policy, moment, changes)
        except BaseException:
            self._state.restore(saved)
            self._nodes.restore(saved_nodes)
            raise
        return changes

    def preview(self, policy: Policy, moment: Moment = Moment.ADMISSION) -> Changes:
        """What `apply` would do, without doing it: for policies in mode Audit."""
        saved, saved_nodes = self._state.save(), self._nodes.save()
        changes = Changes(policy)
        try:
            self._apply(policy, moment, changes)
        except RejectedError as error:
            changes.conflicts.append(error.conflict)
        finally:
            self._state.restore(saved)
            self._nodes.restore(saved_nodes)
        return changes

    def _apply(self, policy: Policy, moment: Moment, changes: Changes) -> None:
        if self._state.excess:
            self._state.conflict(changes, "spec", self._state.excess)
        elif not self._is_affordable(policy):
            self._state.conflict(changes, "spec", "the policies before it direct all that one admission applies")
        elif moment is not Moment.RELEASE:
            exists = moment is Moment.SCHEDULING
            self._place(policy.directives, PLACING_LISTS if exists else LISTS, changes)
            if not exists:
                self._complete(policy.directives, changes)
        elif policy.release is not None:
            self._add_gates((policy.release.gate,), changes)

    def _place(self, directives: Directives, lists: Collection[str], changes: Changes) -> None:
        """What decides about nodes, which a pod that exists can be held to as well; of the lists, those given by path."""
        if directives.required_node_terms is not None:
            self._nodes.join_terms(changes)
        for path, items in directives.lists.items():
            if path == SPREAD:
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
        found = self._affordable.get(policy.key)
        if found is None:
            found = self._affordable[policy.key] = self._state.budget.spend_directives(policy.directives.weight)
        return found

    # ---- scalar fields

    def _set(self, name: str, wanted: str, changes: Changes, *, unset: tuple[str, ...] = ("",)) -> None:
        found = self._state.spec.get(name) or ""
        if found == wanted:
            self._state.claim(name)
            return
        if name == "nodeName" and self._state.spec.get(_GATES):
            self._state.conflict(changes, name, "the API server refuses a node name in a pod with scheduling gates")
            return
        if found not in unset:
            message = f'the pod has "{short(found)}", the policy "{short(wanted)}"'
            if self._state.conflict(changes, name, message) is not ConflictPolicy.OVERRIDE:
                return
        if found:
            changes.replaced[name] = found
        changes.added[name] = wanted
        self._state.claim(name)
        self._state.spec = put(self._state.spec, (name,), wanted)

    def _set_scheduler(self, names: tuple[str, ...], changes: Changes) -> None:
        """One of the names; a pod that has one of them already keeps it."""
        found = self._state.spec.get("schedulerName")
        wanted = found if found in names else names[self._seed % len(names)]
        unset = ("",) if self._state.is_claimed("schedulerName") else ("", DEFAULT_SCHEDULER)
        self._set("schedulerName", wanted, changes, unset=unset)

    # ---- lists

    def _add_items(self, path: str, items: Items, changes: Changes) -> None:
        known = self._state.known(path)
        new = items.without(known)
        if not new or not self._state.fits(new.size, path, changes):
            return
        names = tuple(path.split("."))
        present = self._state.list(names)
        kept = present
        if path == TOLERATIONS and self._is_pod:
            kept = _without_defaults(present, new)
        changes.added[path] = [item.value for item in new]
        if len(kept) < len(present):
            changes.replaced[path] = [each for each in present if each not in kept]
        known.update(new.keys)
        self._state.put(names, [*kept, *changes.added[path]])

    def _add_spread(self, items: Items, changes: Changes) -> None:
        """A pod has one constraint for each topology key and action: the API refuses a second one."""
        present = self._state.list((SPREAD,))
        if self._places[0] is not present:  # for the next policy as well, which mostly adds none
            self._places = present, {_pair(each): number for number, each in enumerate(present)}
        places, known = self._places[1], self._state.known(SPREAD)
        lacking: list[Item] = []
        for item in items:
            pair = _pair(item.value)
            where = f"{SPREAD}[{pair[0]}, {pair[1]}]"
            place = places.get(pair)
            if item.key in known:
                self._state.claim(where)
            elif place is None:
                lacking.append(item)
            elif self._overrides(where, changes):
                self._state.claim(where)
                pairs = changes.replaced.setdefault(SPREAD, [])
                pairs.append([item.value, present[place]])
                self._state.forget_known(SPREAD)
                known = self._state.known(SPREAD)
                present = [*present[:place], item.value, *present[place + 1 :]]
                self._state.put((SPREAD,), present)
        new = Items(lacking)
        if new and self._state.fits(new.size, SPREAD, changes):
            for item in new:
                self._state.claim(f"{SPREAD}[{', '.join(_pair(item.value))}]")
            changes.added[SPREAD] = [item.value for item in new]
            known.update(new.keys)
            self._state.put((SPREAD,), [*present, *changes.added[SPREAD]])

    def _overrides(self, where: str, changes: Changes) -> bool:
        message = "the pod has another constraint for this topology key and action"
        return self._state.conflict(changes, where, message) is ConflictPolicy.OVERRIDE

    def _add_gates(self, names: tuple[str, ...], changes: Changes) -> None:
        present = self._state.list((_GATES,))
        known = {each.get("name") for each in present if isinstance(each, dict)}
        new = [{"name": name} for name in names if name not in known]
        if not new:
            return
        if self._state.spec.get("nodeName"):
            self._state.conflict(changes, _GATES, "the API server refuses scheduling gates in a pod with a node name")
            return
        changes.added[_GATES] = new
        self._state.put((_GATES,), [*present, *new])


def _pair(constraint: Any) -> tuple[str, str]:
    read = constraint.get if isinstance(constraint, dict) else {}.get
    return str(read("topologyKey")), str(read("whenUnsatisfiable"))


def _without_defaults(present: list[Any], new: Items) -> list[Any]:
    """Tolerations without those of the admission plugin for a taint that a policy's toleration speaks of.

    Both together would count as the shorter time: https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/
    """
    spoken = set(_evictions(new))
    return [each for each in present if _DEFAULT_TOLERATIONS.get(item_key(TOLERATIONS, each)) not in spoken]


def _evictions(items: Items) -> Iterator[str]:
    for item in items:
        if item.value.get("effect") in (None, "", "NoExecute"):
            key = item.value.get("key")
            yield from (key,) if key else _DEFAULT_TAINTS
