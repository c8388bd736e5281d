"""Whether groups of gated pods land whole. Plain objects, written from the schema of the policies; shares no code with the release.

Judged are groups by label of policies with the mode Required, in the order of the journal:

1. One domain: two living pods of a group are never in two domains of the first topology key.
2. The gate: a pod loses it only with the node selector of the decided domain. At most as many living pods as the size of the
   group lose it. If the group may grow, pods beyond the size are released as far as the domain has room, and no pod stays at
   the gate beside room for it.
3. Quotas: when a pod loses the gate, the released pods of the policy, terminating ones included, have no more of its domain
   than the quota of the domain and ``maxPerDomain`` allow.
4. Room is handed out once: no placement takes room of a node that an unfinished decision in its domain needs.
5. Preferences: a pod of a decided group may not land on a node while it prefers another node of its domain that has had room
   (`_LAG`) for it and for all unplaced pods of decided groups. Preferred node affinity and taints PreferNoSchedule count. Pods
   with preferred (anti-)affinity or soft spread are not judged, because these may weigh more.
6. Shares: no namespace has room for more groups or pods, or a larger part of all nodes, than its share (`Shares`).
7. At the end a group is whole: all released pods are placed, and no pod is left at the gate. Excepted are groups that lost a
   pod after the decision or a node of their domain, and pods whose scheduler has placed no pod: it does not exist.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from math import inf
from typing import Final, NamedTuple

from extender.simulator.apiserver.kinds import GROUP_PLACEMENTS, NODES, PODS, ServedKind
from extender.simulator.apiserver.store import DELETED, Stored
from extender.simulator.json_objects import (
    JsonObject,
    is_finished,
    is_terminating,
    labels_of,
    name_of,
    namespace_of,
    node_of,
    selects,
    uid_of,
)
from extender.simulator.oracle.brute_force import matches_node_affinity, matches_term, tolerates_taints, untolerated
from extender.simulator.oracle.journal import FailedBinding, Journal, JournalDecision, StoreChange

_USUAL_SCHEDULER: Final = "default-scheduler"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_PREFER_NO_SCHEDULE: Final = ("PreferNoSchedule",)
_SOFT: Final = "ScheduleAnyway"
_WITHOUT_ROOM: Final = frozenset({"GrowingDomain", "CoarserDomain", "Anywhere"})
_LAG: Final = 1.0  # seconds: the extender may know a change so much later than the judge
_USUAL_GATE: Final = "placement.extender.dev/group"
_UNITS: Final = {"m": 0.001, "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "k": 1e3, "M": 1e6, "G": 1e9}
_ROUNDING: Final = 1e-6
_AFFINITY_POINTS: Final = 200.0  # the weights of kube-scheduler's plugins: 2 and 3 times 100
_TAINT_POINTS: Final = 300.0
_OTHER_POINTS: Final = 100.0  # by which resources may weigh more


class Shares(NamedTuple):
    """What a namespace may have reserved at a time: ``release.groupsPerNamespace``, ``podsPerNamespace`` and ``sharePerNamespace``.

    Room of a pod counts from the decision about its group, or from its release if it came later. It ends when the pod is placed
    or deleted, or after ``reservation`` seconds; after ``unasked`` seconds if its scheduler places no pods.
    """

    groups: int
    pods: int
    share: float
    reservation: float
    unasked: float


class GangViolation(NamedTuple):
    """A group and what is wrong with it."""

    gang: str
    reason: str

    def __str__(self) -> str:
        """One line for a report."""
        return f"group {self.gang}: {self.reason}"


class _Rules(NamedTuple):
    """What the judge reads of a policy."""

    name: str
    namespace: str
    selector: JsonObject | None
    label: str
    size: JsonObject
    gate: str
    key: str
    lets_go: bool
    grows: bool
    names: Mapping[str, str]
    quotas: Mapping[str, Mapping[str, float]]
    most: float

    def domain_of(self, value: str | None) -> str | None:
        """The domain of nodes with a value of the key: its name where the policy lists it, else the value."""
        return None if value is None else self.names.get(value, value)


@dataclass
class _Gang:
    """A group: its pods by UID, the decided domain, and whether it lost anything since.

    ``room``: by UID, since when there is room for a pod. ``out``: UIDs of pods that have lost the gate. ``is_large``: the group
    alone needs more than a namespace may have.
    """

    name: str
    rules: _Rules
    pods: dict[str, JsonObject] = field(default_factory=dict)
    domain: str = ""
    is_bereft: bool = False
    is_large: bool = False
    room: dict[str, float] = field(default_factory=dict)
    out: set[str] = field(default_factory=set)

    @property
    def namespace(self) -> str:
        """The namespace of its pods."""
        return self.name.partition("/")[0]

    @property
    def alive(self) -> dict[str, JsonObject]:
        """Its pods that have not finished and are not being deleted."""
        return {uid: pod for uid, pod in self.pods.items() if not is_finished(pod) and not is_terminating(pod)}

    def is_gated(self, pod: JsonObject) -> bool:
        """Whether a pod has the gate."""
        return any(gate["name"] == self.rules.gate for gate in pod["spec"].get("schedulingGates") or ())

    @property
    def due(self) -> dict[str, JsonObject]:
        """The living pods that are released or have to be released together."""
        alive = self.alive
        released = {uid: pod for uid, pod in alive.items() if not self.is_gated(pod)}
        waiting = (uid for uid in alive if uid not in released)
        # Pods beyond the size of a group that grows are released one by one, and are not due together.
        missing = max(self.size - len(released), 0) if self.rules.grows else len(alive)
        return released | {uid: alive[uid] for uid, _ in zip(waiting, range(missing), strict=False)}

    @property
    def size(self) -> int:
        """The size that its first pod declares; 0 without a declaration or a pod."""
        pod = next(iter(self.pods.values()), None)
        if pod is None:
            return 0
        wanted = self.rules.size
        if "label" in wanted:
            return int(labels_of(pod).get(wanted["label"], 0))
        if "annotation" in wanted:
            return int((pod["metadata"].get("annotations") or {}).get(wanted["annotation"], 0))
        return int(wanted.get("count", 1))


def gang_violations(journal: Journal, shares: Shares | None = None) -> list[GangViolation]:
    """Every violation of a run; one of each kind for a group. O(pods of the domain) per decision, O(groups' pods) per release."""
    rules = list(_rules_of(journal.policies))
    if not rules:
        return []
    judge = _Judge(rules, shares)
    for kind, rows in journal.start.items():
        for stored in rows:
            # Since ever: room that a node has at the start is known to the extender.
            judge.show(kind, stored, None, float("-inf"))
    for entry in journal.judged():
        if isinstance(entry, StoreChange):
            after = None if entry.change.type == DELETED else entry.change.stored
            judge.show(entry.kind, after, entry.change.previous, entry.change.at)
        elif isinstance(entry, JournalDecision):
            judge.place(entry.uid, entry.pod, entry.node, entry.decided_at)
        elif isinstance(entry, FailedBinding):
            judge.fail(entry.uid, entry.at)
    judge.end()
    return list(dict.fromkeys(judge.found))


def _rules_of(policies: Iterable[JsonObject]) -> Iterator[_Rules]:
    for policy in policies:
        spec = policy["spec"]
        release = spec.get("release") or {}
        label = (release.get("group") or {}).get("label")
        acts = "Release" in (spec.get("when") or ()) and spec.get("mode", "Enforce") == "Enforce"
        domains = release.get("domains") or ()
        actions = {step["action"] for step in release.get("noRoom") or ()}
        if acts and label and "SeveralDomains" not in actions:
            yield _Rules(
                name_of(policy),
                namespace_of(policy) if policy["kind"] == "PodSchedulingPolicy" else "",
                spec.get("podSelector"),
                label,
                release.get("size") or {"count": 1},
                release.get("gate", _USUAL_GATE),
                release["topology"][0],
                bool(actions & _WITHOUT_ROOM),
                not release.get("laterPods", "").startswith("Replace"),
                {value: domain["name"] for domain in domains for value in domain["values"]},
                {domain["name"]: _amounts(domain["quota"]) for domain in domains if domain.get("quota")},
                release.get("maxPerDomain", inf),
            )


def _amounts(quota: JsonObject) -> dict[str, float]:
    amounts = {name: _quantity(text) for name, text in (quota.get("resources") or {}).items()}
    return amounts | ({"pods": float(quota["pods"])} if "pods" in quota else {})


def _pinned(pod: JsonObject, rules: _Rules) -> str | None:
    """The domain to which a pod is narrowed, by its node selector or by each of its required node terms."""
    value = (pod["spec"].get("nodeSelector") or {}).get(rules.key)
    if value is not None:
        return rules.domain_of(value)
    affinity: JsonObject = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    terms = (affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}).get("nodeSelectorTerms") or ()
    names: set[str | None] = set()
    for term in terms:
        clauses = [clause for clause in term.get("matchExpressions") or () if clause["key"] == rules.key]
        listed = [clause["values"] for clause in clauses if clause["operator"] == "In"]
        # The release appends its requirement to each term, so the last one is its own.
        names |= {rules.domain_of(value) for value in listed[-1]} if listed else {None}
    return names.pop() if len(names) == 1 else None


class _Judge:
    """The state at a moment of the journal, and what was found until then."""

    def __init__(self, rules: list[_Rules], shares: Shares | None) -> None:
        self.found: list[GangViolation] = []
        self._shares = shares
        self._offering: dict[str, float] = {}  # by all nodes together
        # The largest offer and not the present one: a share that was reserved rightly stays right when a node is
        # deleted.
        self._offered: dict[str, float] = {}  # at most until now
        self.placed: dict[str, tuple[JsonObject, str]] = {}  # by UID: the pod and its node
        self._rules = rules
        self._schedulers = {_USUAL_SCHEDULER}  # have placed a pod, or may still do so
        self._nodes: dict[str, JsonObject] = {}
        self._gangs: dict[tuple[str, str, str], _Gang] = {}
        self._freed: dict[str, float] = {}  # by node, when it changed or a pod left it

    def show(self, kind: ServedKind, stored: Stored | None, before: Stored | None, at: float) -> None:
        """Applies a change of an object; None before it existed, and after it was deleted."""
        if kind is NODES:
            self._show_node(stored, before)
            if stored is not None:
                self._freed[stored.key] = at
        elif kind is PODS:
            self._show_pod(stored, before, at)
        elif kind is GROUP_PLACEMENTS and stored is not None:
            self._show_decision(stored.read(), at)

    def place(self, uid: str, pod: JsonObject, node: str, at: float = inf) -> None:
        """Judges a decision of the scheduling loop, and counts the pod on its node."""
        self._schedulers.add(_scheduler_of(pod))
        gang = self._gang_of(pod)
        if gang is not None and node in self._nodes:
            here = self._domain(node, gang.rules)
            for other in gang.alive:
                there = self.placed.get(other)
                if other != uid and there is not None and self._domain(there[1], gang.rules) not in {here, None}:
                    self._add(gang, f"split between {here} and {self._domain(there[1], gang.rules)}")
        if gang is not None and gang.domain and node in self._nodes:
            self._judge_preference(gang, pod, node, at)
        open_ = [gang for gang in self._gangs.values() if gang.domain and node in self._domain_nodes(gang)]
        # Room that was missing before is not this placement's fault, so only a change from none to some is a
        # violation.
        before = {gang.name: self._missing(gang) for gang in open_}
        self.placed[uid] = pod, node
        for other_gang in open_:
            if before[other_gang.name] == 0 and self._missing(other_gang) > 0:
                self._add(other_gang, f"room in {other_gang.domain} that was decided for it went to another pod")

    def fail(self, uid: str, at: float) -> None:
        """A binding failed: the pod is on no node."""
        if uid in self.placed:
            self._freed[self.placed.pop(uid)[1]] = at

    def _judge_preference(self, gang: _Gang, pod: JsonObject, node: str, at: float) -> None:
        """A pod of a group is placed: whether a node that it prefers more has had room."""
        # 1. Not judged: a pod with soft constraints on other pods, which may weigh more, or with a nomination.
        # 2. Points as kube-scheduler weighs them, over the nodes of the domain that admit the pod.
        # 3. A node is better only by more than resources can weigh (`_OTHER_POINTS`).
        # 4. It counts only if it has had room for this pod and for all unplaced pods of decided groups: their room could be
        #    reserved on this node. And for longer than `_LAG`, because the extender decides by an older state.
        affinity = pod["spec"].get("affinity") or {}
        terms = (affinity.get("nodeAffinity") or {}).get(_PREFERRED) or ()
        others = [(affinity.get(side) or {}).get(_PREFERRED) for side in ("podAffinity", "podAntiAffinity")]
        soft = [
            constraint
            for constraint in pod["spec"].get("topologySpreadConstraints") or ()
            if constraint["whenUnsatisfiable"] == _SOFT
        ]
        if any(others) or soft or (pod.get("status") or {}).get("nominatedNodeName"):
            return
        domain = [name for name in self._domain_nodes(gang) if self._admits(name, pod)]
        weights = {
            name: sum(term["weight"] for term in terms if matches_term(term["preference"], self._nodes[name]))
            for name in domain
        }
        most = max(weights.values(), default=0) or 1
        points = {
            name: _AFFINITY_POINTS * weight / most
            + _TAINT_POINTS * (untolerated(pod, self._nodes[name], _PREFER_NO_SCHEDULE) is None)
            for name, weight in weights.items()
        }
        better = [name for name, score in points.items() if score > points.get(node, inf) + _OTHER_POINTS]
        if not better:
            return
        needed = _total(
            [_requests(pod), *(_requests(other) for other in self._left(gang) if uid_of(other) != uid_of(pod))]
        )
        better_room = next(
            (name for name in better if at >= self._freed.get(name, -inf) + _LAG and self._has_room(name, needed)), None
        )
        if better_room is not None:
            self._add(gang, f"a pod landed on {node}, and prefers {better_room}, which has room")

    def _admits(self, name: str, pod: JsonObject) -> bool:
        node = self._nodes[name]
        return matches_node_affinity(pod, node) and tolerates_taints(pod, node) and bool(_room_of(node))

    def _has_room(self, name: str, needed: Mapping[str, float]) -> bool:
        used = _total(_requests(pod) for pod, node in self.placed.values() if node == name)
        offered = _room_of(self._nodes[name])
        return all(
            offered.get(resource, 0.0) + _ROUNDING >= used.get(resource, 0.0) + amount
            for resource, amount in needed.items()
        )

    def end(self) -> None:
        """Judges the final state, when the cluster is idle."""
        # Two violations: gated pods beyond the size although the domain has room; a group that is placed only in part. The first
        # is not judged for policies with quotas, because these may keep a pod at the gate.
        for gang in self._gangs.values():
            alive = {uid: pod for uid, pod in gang.alive.items() if _scheduler_of(pod) in self._schedulers}
            released = [pod for pod in alive.values() if not gang.is_gated(pod)]
            waiting = sum(gang.is_gated(pod) for uid, pod in gang.due.items() if uid in alive)
            beyond = [pod for uid, pod in alive.items() if uid not in gang.due]
            is_limited = gang.rules.quotas or gang.rules.most < inf
            if (
                beyond
                and gang.domain
                and not is_limited
                and self._holds(gang, beyond[0]) > len(self._left(gang, bereft=True))
            ):
                self._add(gang, f"beyond its size {len(beyond)} gated, and {gang.domain} has room")
            unplaced = sum(uid_of(pod) not in self.placed for pod in released)
            if released and not gang.is_bereft and (waiting or unplaced):
                parts = f"{len(released) - unplaced} placed, {unplaced} released only, {waiting} gated"
                self._add(gang, f"not whole at the end: {parts}")

    def _show_node(self, stored: Stored | None, before: Stored | None) -> None:
        name = stored.key if stored is not None else before.key if before is not None else ""
        old = self._nodes.pop(name, None)
        if stored is not None:
            self._nodes[name] = stored.read()
        for sign, node in ((-1.0, old), (1.0, self._nodes.get(name))):
            for resource, amount in (_room_of(node) if node is not None else {}).items():
                now = self._offering[resource] = self._offering.get(resource, 0.0) + sign * amount
                self._offered[resource] = max(now, self._offered.get(resource, 0.0))
        # Room was lost after the decision: the group may stay incomplete without a fault of the release.
        if old is not None and (stored is None or _room_of(old) != _room_of(self._nodes[name])):
            for gang in self._gangs.values():
                if gang.domain and gang.rules.domain_of(labels_of(old).get(gang.rules.key)) == gang.domain:
                    gang.is_bereft = True

    def _show_pod(self, stored: Stored | None, before: Stored | None, at: float) -> None:
        shown = stored or before
        if shown is None:
            return
        pod = shown.read()
        uid, gang = uid_of(pod), self._gang_of(pod)
        is_gone = stored is None or is_finished(pod)
        if is_gone:
            if uid in self.placed:
                self._freed[self.placed[uid][1]] = at
            self.placed.pop(uid, None)
        elif node_of(pod):
            self.placed[uid] = pod, node_of(pod)
        if gang is None:
            return
        # From now on the group may be incomplete through no fault of the release: its replacement needs room that may be gone.
        if (is_gone or is_terminating(pod)) and gang.domain:
            gang.is_bereft = True
        if stored is None:
            gang.pods.pop(uid, None)
            return
        gang.pods[uid] = pod
        self._judge_release(gang, pod, at)

    def _judge_release(self, gang: _Gang, pod: JsonObject, at: float) -> None:
        released = [pod for pod in gang.alive.values() if not gang.is_gated(pod)]
        if len(released) > gang.size and not gang.rules.grows:
            self._add(gang, f"{len(released)} of {gang.size} pods are released")
        if pod in released:
            pinned = _pinned(pod, gang.rules)
            if pinned is None:
                self._add(gang, "a pod was released without a domain")
            elif pinned != gang.domain:
                self._add(gang, f"a pod was released to {pinned}, decided was {gang.domain or 'nothing'}")
            if gang.domain and uid_of(pod) not in gang.room:
                gang.room[uid_of(pod)] = at
                self._judge_shares(gang, at)
            # Judged once for each pod, at its release: later the quota may be lowered, which takes nothing away.
            if uid_of(pod) not in gang.out:
                gang.out.add(uid_of(pod))
                self._judge_quota(gang)

    def _judge_shares(self, gang: _Gang, at: float) -> None:
        """Judges what a namespace has when room was reserved for a group or for one more pod of it."""
        shares, held = self._shares, self._with_room(gang, at)
        if shares is None:
            return
        # A group that exceeds the share by itself is not judged: no waiting would help it.
        gang.is_large |= bool(_excess(shares, [held], self._offered))
        every = [self._with_room(other, at) for other in self._gangs.values() if other.namespace == gang.namespace]
        excess = "" if gang.is_large or gang.rules.lets_go else _excess(shares, every, self._offered)
        if excess:
            self._add(gang, f"with it the namespace has room reserved for {excess}")

    def _judge_quota(self, gang: _Gang) -> None:
        """Judges how much of a domain's quota the pods of a policy use, when a pod has lost its gate."""
        rules, domain = gang.rules, gang.domain
        quota = dict(rules.quotas.get(domain, {}))
        quota["pods"] = min(quota.get("pods", rules.most), rules.most)
        every = [pod for other in self._gangs.values() if other.rules is rules for pod in other.pods.values()]
        here = [
            pod for pod in every if not is_finished(pod) and not gang.is_gated(pod) and _pinned(pod, rules) == domain
        ]
        for name, amount in _total(map(_requests, here)).items():
            if amount > quota.get(name, amount) + _ROUNDING:
                self._add(gang, f"with it pods have {amount:g} {name} of {domain}, its quota is {quota[name]:g}")

    def _with_room(self, gang: _Gang, at: float) -> list[JsonObject]:
        """The pods of a group that have room; empty if the group was released without room."""
        shares = self._shares
        if shares is None or gang.is_large or gang.rules.lets_go:
            return []
        alive, placed = gang.alive, []
        for uid, since in gang.room.items():
            pod = alive.get(uid)
            if pod is None or uid in self.placed:
                continue
            is_asked = _scheduler_of(pod) in self._schedulers
            # A reservation that ends within the lag may have ended already for the extender.
            if at < since + (shares.reservation if is_asked else min(shares.reservation, shares.unasked)) - _LAG:
                placed.append(pod)
        return placed

    def _show_decision(self, placement: JsonObject, at: float) -> None:
        spec = placement["spec"]
        policy = spec["policy"].rpartition("/")[2]
        gang = self._gangs.get((namespace_of(placement), policy, spec["group"]))
        levels = spec.get("topology") or []
        domain = gang.rules.domain_of(levels[0]["value"]) if gang is not None and levels else None
        if gang is not None and domain is not None and gang.domain != domain:
            gang.domain, gang.is_bereft, gang.is_large = domain, False, False
            gang.room = dict.fromkeys(list(gang.alive)[: gang.size], at)
            self._judge_shares(gang, at)

    def _gang_of(self, pod: JsonObject) -> _Gang | None:
        for rules in self._rules:
            value = labels_of(pod).get(rules.label)
            is_there = rules.namespace in {"", namespace_of(pod)}
            if value and is_there and selects(rules.selector, labels_of(pod)):
                key = namespace_of(pod), rules.name, value
                return self._gangs.setdefault(key, _Gang(f"{key[0]}/{value}", rules))
        return None

    def _domain(self, node: str, rules: _Rules) -> str | None:
        obj = self._nodes.get(node)
        return None if obj is None else rules.domain_of(labels_of(obj).get(rules.key))

    def _domain_nodes(self, gang: _Gang) -> list[str]:
        return [name for name in self._nodes if self._domain(name, gang.rules) == gang.domain]

    def _missing(self, gang: _Gang) -> int:
        """How many pods of decided groups find no room in the domain. The number is exact if all pods have equal requests.

        Groups that lost a pod or a node of their domain are left out: their room may have been lost too.
        """
        if gang.is_bereft:
            return 0
        left = self._left(gang)
        return max(len(left) - self._holds(gang, left[-1]), 0) if left else 0

    def _left(self, gang: _Gang, *, bereft: bool = False) -> list[JsonObject]:
        """The due and unplaced pods of all groups with the same domain. ``bereft``: also of groups that lost a pod or a node."""
        pods: list[JsonObject] = []
        for other in self._gangs.values():
            if other.domain == gang.domain and other.rules.key == gang.rules.key and (bereft or not other.is_bereft):
                pods += (pod for uid, pod in other.due.items() if uid not in self.placed)
        return pods

    def _holds(self, gang: _Gang, example: JsonObject) -> int:
        """How many such pods the domain of a group has room for."""
        free = {name: dict(_room_of(self._nodes[name])) for name in self._domain_nodes(gang)}
        for pod, node in self.placed.values():
            if node in free:
                for name, amount in _requests(pod).items():
                    free[node][name] = free[node].get(name, 0.0) - amount
        asked = _requests(example)
        # By the scarcest resource of each node: 3 CPUs and 8 GiB hold three pods with 1 CPU and 2 GiB.
        return sum(
            max(0, int(min((left.get(name, 0.0) + _ROUNDING) / amount for name, amount in asked.items() if amount)))
            for left in free.values()
        )

    def _add(self, gang: _Gang, reason: str) -> None:
        self.found.append(GangViolation(gang.name, reason))


def _excess(shares: Shares, groups: Iterable[list[JsonObject]], offered: Mapping[str, float]) -> str:
    """What exceeds the share of a namespace; empty if nothing does."""
    held = [pods for pods in groups if pods]
    needed = _total(_requests(pod) for pods in held for pod in pods)
    for name, amount in needed.items():
        if name != "pods" and amount > shares.share * offered.get(name, 0.0) * (1 + _ROUNDING):
            return f"{amount:g} of {offered.get(name, 0.0):g} {name}, its share is {shares.share:g}"
    if needed.get("pods", 0.0) > shares.pods:
        return f"{needed['pods']:g} pods, its share is {shares.pods}"
    return f"{len(held)} groups, its share is {shares.groups}" if len(held) > shares.groups else ""


def _total(parts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    total: dict[str, float] = {}
    for part in parts:
        for name, amount in part.items():
            total[name] = total.get(name, 0.0) + amount
    return total


def _scheduler_of(pod: JsonObject) -> str:
    return str(pod["spec"].get("schedulerName") or _USUAL_SCHEDULER)


def _room_of(node: JsonObject) -> dict[str, float]:
    if (node.get("spec") or {}).get("unschedulable"):
        return {}
    return {name: _quantity(text) for name, text in ((node.get("status") or {}).get("allocatable") or {}).items()}


def _requests(pod: JsonObject) -> dict[str, float]:
    amounts: dict[str, float] = {"pods": 1.0}
    for container in pod["spec"].get("containers") or ():
        requests: Mapping[str, str] = (container.get("resources") or {}).get("requests") or {}
        for name, text in requests.items():
            amounts[name] = amounts.get(name, 0.0) + _quantity(text)
    return amounts


@lru_cache(maxsize=1024)  # asked for every pod at every change, and there are few different ones
def _quantity(text: str | float) -> float:
    """A quantity in the notations that scenarios use."""
    if not isinstance(text, str):
        return float(text)
    unit = next((suffix for suffix in sorted(_UNITS, key=len, reverse=True) if text.endswith(suffix)), "")
    return float(text.removesuffix(unit)) * _UNITS.get(unit, 1.0)
