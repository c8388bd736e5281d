"""Spread constraints with the directive `spread` of a policy, by brute force. Written from config/policies/README.md.

An excluded domain takes no pod, does not count for the minimum, and does not count for minDomains. Must not import the index,
the rules or the verbs.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from math import inf
from typing import NamedTuple

from extender.simulator.json_objects import JsonObject, labels_of, selects
from extender.simulator.oracle.brute_force import (
    SPREAD_REJECTED,
    SPREAD_UNLABELLED,
    SUCCESS,
    ClusterState,
    OracleTopologySpread,
    PluginStatus,
    effective_selector,
    matches_node_affinity,
    tolerates_taints,
)
from extender.simulator.oracle.room import room_on

EXCLUDED = PluginStatus("UnschedulableAndUnresolvable", "node(s) were in an excluded topology domain")
_CORDON = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
_OUT_OF_USE = (
    *(
        "not-ready",
        "unreachable",
        "unschedulable",
        "network-unavailable",
        "out-of-service",
        "disk-pressure",
        "pid-pressure",
    ),
)
_REVISIONS = {"ReplicaSet": "pod-template-hash", "StatefulSet": "controller-revision-hash"}


class Known(NamedTuple):
    """The excluded domains and the declared domains of one topology key."""

    excluded: Collection[str] = ()
    declared: Collection[str] = ()


class DirectedSpread(OracleTopologySpread):
    """The filter with one directive for each topology key, as in a policy."""

    def __init__(
        self, pod: JsonObject, state: ClusterState, directives: Iterable[JsonObject], known: Mapping[str, Known]
    ) -> None:
        self._directives = {directive["topologyKey"]: directive for directive in directives}
        self._known = known
        own = pod["spec"].get("topologySpreadConstraints") or []
        super().__init__(pod, state, [self._completed(constraint, pod) for constraint in own])

    def _completed(self, constraint: JsonObject, pod: JsonObject) -> JsonObject:
        """With the label key of the pod's revision."""
        # Unchanged in four cases: no directive asks for it; the pod lacks the label of its revision; a null selector,
        # which selects nothing anyway; the constraint names the key already.
        directive = self._directives.get(constraint["topologyKey"], {})
        owner = next((reference["kind"] for reference in pod["metadata"].get("ownerReferences") or []), "")
        key, selector = _REVISIONS.get(owner), constraint.get("labelSelector")
        if directive.get("matchLabelKeys") != "IfMissing" or key not in labels_of(pod) or selector is None:
            return constraint
        named = {*(selector.get("matchLabels") or {})} | {
            requirement["key"] for requirement in selector.get("matchExpressions") or []
        }
        listed = constraint.get("matchLabelKeys") or []
        return constraint if key in named or key in listed else {**constraint, "matchLabelKeys": [*listed, key]}

    def check(self, node: str) -> PluginStatus:
        """The first failure, in the order of the pod's spec; a node in an excluded domain passes no constraint over its key."""
        if not self.is_parsable:
            return super().check(node)
        for constraint, counts, most in zip(self.constraints, self.counts, self._most, strict=True):
            key = constraint["topologyKey"]
            domain = self.state.domain(node, key)
            if domain is None:
                return SPREAD_UNLABELLED
            if domain in self._excluded(key):
                return EXCLUDED
            if counts.get(domain, 0) > most:
                return SPREAD_REJECTED
        return SUCCESS

    def skews(self) -> dict[str, tuple[int, int]]:
        """By topology key: the skew (pods of the fullest domain that is not excluded, minus the minimum), and maxSkew."""
        skews = {}
        for constraint, counts, most in zip(self.constraints, self.counts, self._most, strict=True):
            key, self_match = constraint["topologyKey"], self._self_match(constraint)
            fullest = max((count for domain, count in counts.items() if domain not in self._excluded(key)), default=0)
            # `_most_in_domain` has most = maxSkew + least - self_match; this is solved for `least`.
            least = most - constraint["maxSkew"] + self_match
            skews[key] = max(fullest - least, 0), constraint["maxSkew"]
        return skews

    def _self_match(self, constraint: JsonObject) -> int:
        return 1 if selects(effective_selector(constraint, self.pod), labels_of(self.pod)) else 0

    def _excluded(self, key: str) -> Collection[str]:
        is_directed = self._directives.get(key, {}).get("unavailableDomains") == "Exclude"
        return self._known.get(key, Known()).excluded if is_directed else ()

    def _most_in_domain(self, constraint: JsonObject, counts: Mapping[str, int]) -> int:
        key = constraint["topologyKey"]
        left = {domain: count for domain, count in counts.items() if domain not in self._left_out(constraint, counts)}
        ineligible = {domain for domain in self._excluded(key) if domain not in counts}
        # An excluded domain must not make minDomains unreachable. So an excluded domain without an eligible node
        # counts as present.
        needed, present = self._needed(constraint), len(counts)
        if isinstance(needed, set):
            present += len(ineligible & needed)
            reached = present >= len(needed)
        else:
            reached = present + len(self._usable(constraint, ineligible)) >= needed
        least = min(left.values(), default=0) if reached else 0
        most: int = constraint["maxSkew"] + least - self._self_match(constraint)
        return most

    def _needed(self, constraint: JsonObject) -> int | set[str]:
        """What minDomains asks for: the pod's own, else the directive's."""
        own, key = constraint.get("minDomains"), constraint["topologyKey"]
        least = self._directives.get(key, {}).get("minDomains")
        # A pod's minDomains of 1 asks for nothing, so the directive may raise it.
        if own not in (None, 1) or least is None:
            return own or 1
        if least != "Declared":
            return int(least)
        return self._usable(constraint, set(self._known.get(key, Known()).declared))

    def _usable(self, constraint: JsonObject, domains: set[str]) -> set[str]:
        """The domains that the pod's nodeSelector allows, if the constraint honours it."""
        key, pinned = constraint["topologyKey"], self.pod["spec"].get("nodeSelector") or {}
        honors = (constraint.get("nodeAffinityPolicy") or "Honor") == "Honor"
        return domains & {pinned[key]} if honors and key in pinned else domains

    def _left_out(self, constraint: JsonObject, counts: Mapping[str, int]) -> set[str]:
        """The domains that do not count for the minimum: excluded domains, and full domains if the directive excludes them."""
        key = constraint["topologyKey"]
        left_out = set(self._excluded(key))
        if self._directives.get(key, {}).get("fullDomains") == "Exclude":
            is_eligible = self._eligibility(constraint)
            takes = {
                self.state.domain(name, key) for name in self.state.nodes if is_eligible(name) and self._fits(name)
            }
            left_out |= {domain for domain in counts if domain not in takes}
        return left_out

    def _fits(self, name: str) -> bool:
        node = self.state.nodes[name]
        if (node.get("spec") or {}).get("unschedulable") and not tolerates_taints(
            self.pod, {"spec": {"taints": [_CORDON]}}
        ):
            return False
        fits = tolerates_taints(self.pod, node) and matches_node_affinity(self.pod, node)
        return fits and room_on(self.pod, name, self.state) == SUCCESS


def takes_pods(node: JsonObject) -> bool:
    """Whether a node can take any pod, by its conditions, taints and cordon."""
    spec, conditions = node.get("spec") or {}, (node.get("status") or {}).get("conditions") or []
    lost = {f"node.kubernetes.io/{condition}" for condition in _OUT_OF_USE}
    # PreferNoSchedule keeps no pod away.
    tainted = any(taint["key"] in lost and taint["effect"] != "PreferNoSchedule" for taint in spec.get("taints") or [])
    unready = any(condition["type"] == "Ready" and condition["status"] != "True" for condition in conditions)
    return not (spec.get("unschedulable") or tainted or unready)


def directives_of(policies: Iterable[JsonObject]) -> list[JsonObject]:
    """The directives `spread` of policies."""
    return [directive for policy in policies for directive in policy["spec"].get("spread") or []]


class Outages:
    """When the domains of directed topology keys were without a node that takes pods, in the order of a journal.

    A decision may rest on any state between the times of `ask`. So it is judged twice: with the domains that were excluded all
    the time, and with the domains that were excluded at any time. Exclusions by operators are not followed, because no step of a
    scenario makes them.
    """

    def __init__(self, policies: Iterable[JsonObject]) -> None:
        spread = directives_of(policies)
        self._keys = {
            directive["topologyKey"] for directive in spread if directive.get("unavailableDomains") == "Exclude"
        }
        # By key and domain: since when, until when. Stalls of the event loop do not count as time.
        self._lost: dict[tuple[str, str], tuple[float, float]] = {}
        # Since when with stalls, because the extender's clock runs during a stall.
        self._real: dict[tuple[str, str], float] = {}
        self._since = self._until = self._now = 0.0

    def recount(self, state: ClusterState, at: float, real: float) -> None:
        """Call after a change of nodes. ``at``: its time without stalls; ``real``: with stalls. O(nodes)."""
        for key in self._keys:
            takes: dict[str, bool] = {}
            for name, node in state.nodes.items():
                if (domain := state.domain(name, key)) is not None:
                    takes[domain] = takes.get(domain, False) or takes_pods(node)
            known = {domain for of_key, domain in self._lost if of_key == key}
            for domain in known | takes.keys():
                # `ended` is inf while the domain is lost. After the outage the times stay, because a decision may rest
                # on an earlier state.
                begun, ended = self._lost.get((key, domain), (inf, at))
                # A domain whose last node was deleted is no domain any more, so its outage ends.
                is_lost = not takes.get(domain, True)
                if is_lost and ended != inf:
                    self._lost[key, domain], self._real[key, domain] = (at, inf), real
                elif not is_lost and ended == inf:
                    self._lost[key, domain] = begun, at

    def ask(self, since: float, until: float, now: float) -> None:
        """Sets the interval of the decisions to judge, without stalls. ``now``: its end with stalls."""
        self._since, self._until, self._now = since, until, now

    def spreads(self, pod: JsonObject, state: ClusterState, directives: Sequence[JsonObject]) -> list[DirectedSpread]:
        """The filters that the decision may rest on. O(domains)."""
        sure, possible = {}, {}
        for directive in directives:
            key, after = directive["topologyKey"], _seconds(directive.get("after", "5m"))
            lost = {domain: times for (of_key, domain), times in self._lost.items() if of_key == key}
            begun = {
                domain
                for domain, (_, ended) in lost.items()
                if self._real[key, domain] + after <= self._now and ended >= self._since
            }
            possible[key] = Known(begun)
            # Sure: the outage had lasted long enough before the request began, and had not ended when the pod was
            # decided.
            sure[key] = Known(
                {domain for domain in begun if lost[domain][0] + after <= self._since and lost[domain][1] > self._until}
            )
        return [DirectedSpread(pod, state, directives, known) for known in (sure, possible)]


def _seconds(duration: str) -> float:
    """A duration of whole hours, minutes or seconds, as policies have it."""
    return int(duration[:-1]) * {"s": 1, "m": 60, "h": 3600}[duration[-1]]
