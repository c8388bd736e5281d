"""The cluster of a soak: nodes, namespaces and policies at the start, pods that come and go, and what changes meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from extender.simulator.apiserver.kinds import NAMESPACES, NODES, PODS, Target
from extender.simulator.apiserver.server import ApiServer
from extender.simulator.json_objects import JsonObject, labels_of, name_of
from tests.simulator import plain

NODE_COUNT: Final = 100
_ZONES, _RACKS, _SPARE = 4, 12, 12  # spare: nodes that change
TEAMS: Final = 5
_TEAM: Final[JsonObject] = {"matchLabels": {"team": "devops"}}
_CHANGING: Final = f"team-{TEAMS - 1}"
_GROUP, _VERSION = "placement.extender.dev", "placement.extender.dev/v1alpha1"


def objects() -> list[JsonObject]:
    """What is there at the start."""
    nodes = [_node(number) for number in range(NODE_COUNT)]
    namespaces = [plain.namespace(f"team-{number}", team="devops") for number in range(TEAMS)]
    anchors = [
        plain.pod(f"anchor-{number}", "team-0", on=f"node-{number}", labels={"app": "anchor"}) for number in range(8)
    ]
    return [*nodes, *namespaces, plain.namespace("guest", team="none"), *anchors, *_policies()]


def _node(number: int) -> JsonObject:
    labels = {"rack": f"rack-{number % _RACKS}", "pool": "batch" if number % 3 else "general"}
    return plain.node(f"node-{number}", f"zone-{number % _ZONES}", labels=labels)


def _policies() -> list[JsonObject]:
    host = {"topologyKey": plain.HOSTNAME, "labelSelector": {"matchLabels": {"app": "quorum"}}}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [host]}}
    return [
        _policy("batch-pool", {"app": "batch"}, nodeSelector={"pool": "batch"}),
        _policy("quorum-apart", {"app": "quorum"}, affinity=apart),
    ]


def _policy(name: str, labels: dict[str, str], **spec: object) -> JsonObject:
    whole = {"podSelector": {"matchLabels": labels}, "namespaceSelector": {}, "when": ["Scheduling"], **spec}
    kind = "ClusterPodSchedulingPolicy"
    return {"kind": kind, "apiVersion": _VERSION, "metadata": {"name": name, "generation": 1}, "spec": whole}


def _preferred(term: JsonObject) -> JsonObject:
    return {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 10, "podAffinityTerm": term}]}


def _template(rng: Random) -> tuple[dict[str, str], JsonObject]:
    """Labels and spec of a pod."""
    number = rng.randrange(3)
    app = {"app": f"app-{number}"}
    match rng.randrange(12):
        case 0 | 1:
            return app, {"affinity": plain.anti_affinity(plain.term(plain.HOSTNAME, namespaces=_TEAM, app=app["app"]))}
        case 2:
            return {"app": "near"}, {"affinity": plain.affinity(plain.term(namespaces=_TEAM, app="anchor"))}
        case 3 | 4:
            return app, {"topologySpreadConstraints": [plain.spread(labels=app, minDomains=3)]}
        case 5:
            both = [plain.spread(skew=3, labels=app), plain.spread(plain.HOSTNAME, skew=2, labels=app)]
            return app, {"topologySpreadConstraints": both, "nodeSelector": {"pool": "batch"}}
        case 6:  # few fit: by rack or zone, and some preempt others
            key, of = rng.choice(((plain.ZONE, "solo"), ("rack", "racked")))
            labels = {"app": f"{of}-{number % 2}"}
            affinity = plain.anti_affinity(plain.term(key, namespaces={}, app=labels["app"]))
            return labels, {"affinity": affinity, "priority": rng.choice((0, 0, 100, 1000))}
        case 7:  # with others of its own, the first one anywhere
            pair = {"app": f"pair-{number}"}
            return pair, {"affinity": plain.affinity(plain.term("rack", app=pair["app"]))}
        case 8:
            soft = [plain.spread(hard=False, labels=app)]
            away = {"podAntiAffinity": _preferred(plain.term(plain.HOSTNAME, namespaces={}, app=app["app"]))}
            return app, {"topologySpreadConstraints": soft, "affinity": away}
        case 9:
            return {"app": "quorum"}, {}
        case 10:
            return {"app": "batch"}, {}
        case _:
            return {"app": "plain", "version": f"v{rng.randrange(50)}"}, {}


class Changes:
    """Changes objects as users and controllers do, at once and without a fault. Counts each in ``counts``."""

    def __init__(self, api: ApiServer, rng: Random, count: Callable[[str], None]) -> None:
        self._api = api
        self._rng = rng
        self._count = count
        self._made = 0
        self._keys: list[str] = []
        self._removed: list[JsonObject] = []
        self._cordoned: set[str] = set()

    @property
    def living(self) -> int:
        """About how many pods there are."""
        return len(self._keys)

    def arrive(self) -> str:
        """Creates a pod, and returns its key."""
        self._made += 1
        labels, spec = _template(self._rng)
        namespace = self._rng.choice((*(f"team-{number}" for number in range(TEAMS)), "guest"))
        pod = plain.pod(f"pod-{self._made}", namespace, labels=labels, **spec)
        key = self._api.operations.create(PODS, pod).key
        self._keys.append(key)
        return key

    def leave(self) -> None:
        """Deletes a random pod, with or without a grace period."""
        place = self._rng.randrange(len(self._keys))
        key, self._keys[place] = self._keys[place], self._keys[-1]
        self._keys.pop()
        self.delete(key)

    def delete(self, key: str) -> None:
        """Deletes a pod, if it is there."""
        namespace, _, name = key.partition("/")
        if key in self._api.store.table(PODS).objects:
            grace = {"gracePeriodSeconds": self._rng.choice((0, 0, 30))}
            self._api.pods.delete(Target(PODS, namespace, name), grace)

    def change(self) -> None:
        """One other change."""
        self._rng.choice((self._relabel_namespace, self._relabel_node, self._relabel_pod, self._cordon, self._node))()

    def _relabel_namespace(self) -> None:
        labels = {"team": self._rng.choice(("devops", "none"))}
        self._api.operations.change(NAMESPACES, _CHANGING, lambda found: found["metadata"].update(labels=labels))
        self._count("namespace relabelled")

    def _spare(self) -> Sequence[str]:
        nodes = self._api.store.table(NODES).objects
        return [name for number in range(_SPARE) if (name := f"node-{NODE_COUNT - 1 - number}") in nodes]

    def _change_spare(self, what: str, edit: Callable[[JsonObject], None]) -> None:
        self._api.operations.change(NODES, self._rng.choice(self._spare()), edit)
        self._count(what)

    def _relabel_node(self) -> None:
        labels = {plain.ZONE: f"zone-{self._rng.randrange(_ZONES)}", "rack": f"rack-{self._rng.randrange(_RACKS)}"}
        self._change_spare("node relabelled", lambda found: labels_of(found).update(labels))

    def _cordon(self) -> None:
        is_off = self._rng.random() < 0.5

        def edit(node: JsonObject) -> None:
            node["spec"]["unschedulable"] = is_off
            (self._cordoned.add if is_off else self._cordoned.discard)(name_of(node))

        self._change_spare("node cordoned or uncordoned", edit)

    def _relabel_pod(self) -> None:
        if self._keys and (key := self._rng.choice(self._keys)) in self._api.store.table(PODS).objects:
            app = {"app": f"app-{self._rng.randrange(3)}"}
            self._api.operations.change(PODS, key, lambda found: labels_of(found).update(app))
            self._count("pod relabelled")

    def _node(self) -> None:
        """A spare node goes with its pods, or one comes back; some stay."""
        spare = self._spare()
        if self._removed and (len(spare) < _SPARE // 2 or self._rng.random() < 0.5):
            self._api.operations.create(NODES, self._removed.pop(self._rng.randrange(len(self._removed))))
            self._count("node added")
        elif spare:
            name = self._rng.choice(spare)
            self._removed.append(self._api.store.find(NODES, name).read())
            self._api.store.remove(NODES, name)
            for stored in [each for each in self._api.store.table(PODS).objects.values() if each.node == name]:
                self.delete(stored.key)
            self._count("node deleted")

    def schedulable(self) -> list[str]:
        """The nodes that are not cordoned. O(nodes)."""
        return [name for name in self._api.store.table(NODES).objects if name not in self._cordoned]
