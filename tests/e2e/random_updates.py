"""Random pods and random edits of them, legal and illegal, from a seed: to compare with what a real apiserver says.

An edit changes a pod as the apiserver has stored it. What the apiserver itself fills in at an update (default tolerations,
the generation, requests of a whole pod) is left alone, as it is not a matter of what an update may change.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Final

from extender.simulator.json_objects import JsonObject
from tests.builders import PREFERRED, REQUIRED

Edit = Callable[[JsonObject, Random], None]

_VALUES: Final = {"In": ["x"], "NotIn": ["y", "x"], "Exists": None, "Gt": ["5"]}
_WRONG: Final[list[JsonObject]] = [
    {"key": "a b", "operator": "Exists"},
    {"key": "a", "operator": "In", "values": ["-"]},
    {"key": "a", "operator": "In"},
    {"key": "a", "operator": "Is", "values": ["x"]},
    {"key": "a", "operator": "Lt", "values": ["1", "2"]},
]
_TOLERATIONS: Final[list[JsonObject]] = [
    {"key": "z", "operator": "Exists"},
    {"key": "z", "operator": "Gt", "value": "5"},
    {"operator": "Equal"},
    {"key": "z", "effect": "NoSchedule", "tolerationSeconds": 3},
    {"key": "z", "effect": "Never"},
    {"key": "z", "value": "-"},
    {"operator": "Exists", "value": "a"},
]
_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
_OWNER: Final = {"apiVersion": "v1", "kind": "A", "name": "x", "uid": "u", "controller": True}


def random_pod(name: str, rng: Random) -> JsonObject:
    """A valid pod in which each field that rules speak of may be set."""
    container = {
        "name": "c",
        "image": "i:1",
        "resources": {"limits": {"cpu": "1"}},
        "env": [{"name": "A", "value": "b"}],
    }
    optional: JsonObject = {
        "schedulingGates": [{"name": each} for each in rng.sample(["a/b", "c/d", "e"], rng.randint(1, 3))],
        "nodeSelector": {"zone": "x"},
        "affinity": _affinity(rng),
        "tolerations": [{"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}],
        "activeDeadlineSeconds": 100,
        "initContainers": [{"name": "i", "image": "i:1"}],
        "os": {"name": "linux"},
        "securityContext": {"runAsUser": 0},
        "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}],
    }
    spec = {field: value for field, value in optional.items() if rng.random() < (0.6 if "Gates" in field else 0.35)}
    metadata = {"name": name, "namespace": "default", "labels": {"a": "b"}}
    return {"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": {"containers": [container], **spec}}


def _affinity(rng: Random) -> JsonObject:
    terms = {"nodeSelectorTerms": [_term(rng) for _ in range(rng.randint(1, 2))]}
    parts: JsonObject = {
        "nodeAffinity": rng.choice([{REQUIRED: terms}, {PREFERRED: [{"weight": 3, "preference": _term(rng)}]}, {}]),
        "podAffinity": {REQUIRED: [{"topologyKey": "zone", "labelSelector": {"matchLabels": {"q": "r"}}}]},
    }
    return {name: value for name, value in parts.items() if rng.random() < 0.6}


def _expression(rng: Random) -> JsonObject:
    operator = rng.choice(list(_VALUES))
    values = _VALUES[operator]
    return {"key": rng.choice(["a", "b/c", "zone"]), "operator": operator} | ({"values": values} if values else {})


def _term(rng: Random) -> JsonObject:
    return {"matchExpressions": [_expression(rng) for _ in range(rng.randint(1, 2))]}


def _required_terms(pod: JsonObject) -> list[JsonObject]:
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    found: list[JsonObject] = (affinity.get(REQUIRED) or {}).get("nodeSelectorTerms") or []
    return found


def _child(parent: JsonObject, name: str, empty: Any) -> Any:
    """A field that is made where it is absent or null."""
    if parent.get(name) is None:
        parent[name] = empty
    return parent[name]


def _node_affinity(pod: JsonObject) -> JsonObject:
    found: JsonObject = _child(_child(pod["spec"], "affinity", {}), "nodeAffinity", {})
    return found


def _set(path: str, *values: Any) -> Edit:
    """Sets a field to one of the values; None removes it. The last part of the path may be ``*``: of each container."""

    def edit(pod: JsonObject, rng: Random) -> None:
        part, _, name = path.rpartition(".")
        holders = pod["spec"]["containers"] if part == "containers" else [pod[part]]
        for holder in holders:
            holder[name] = rng.choice(values)

    return edit


def _remove_gate(pod: JsonObject, rng: Random) -> None:
    gates = pod["spec"].get("schedulingGates")
    if gates:
        gates.pop(rng.randrange(len(gates)))


def _add_gate(pod: JsonObject, rng: Random) -> None:
    _child(pod["spec"], "schedulingGates", []).insert(0, {"name": rng.choice(["new/gate", "e", "bad name", "a/b"])})


def _select(pod: JsonObject, rng: Random) -> None:
    pair = {rng.choice(["zone", "new", "b a"]): rng.choice(["x", "y", "-"])}
    pod["spec"]["nodeSelector"] = {**(pod["spec"].get("nodeSelector") or {}), **pair}


def _add_term(pod: JsonObject, rng: Random) -> None:
    terms = _child(_child(_node_affinity(pod), REQUIRED, {}), "nodeSelectorTerms", [])
    terms.insert(rng.randint(0, len(terms)), _term(rng))


def _append_to_terms(pod: JsonObject, rng: Random) -> None:
    for term in _required_terms(pod):
        _child(term, "matchExpressions", []).insert(
            rng.choice([0, 99, 99]), rng.choice([_expression(rng), rng.choice(_WRONG)])
        )


def _rename_keys(pod: JsonObject, rng: Random) -> None:
    del rng
    for term in _required_terms(pod):
        term["matchExpressions"] = [{**each, "key": "renamed"} for each in term.get("matchExpressions", [])]


def _empty_terms(pod: JsonObject, rng: Random) -> None:
    _node_affinity(pod)[REQUIRED] = {"nodeSelectorTerms": rng.choice([[], [{}], None])}


def _prefer(pod: JsonObject, rng: Random) -> None:
    _node_affinity(pod)[PREFERRED] = [{"weight": rng.choice([1, 0, 101]), "preference": _term(rng)}]


def _drop_node_affinity(pod: JsonObject, rng: Random) -> None:
    del rng
    (pod["spec"].get("affinity") or {}).pop("nodeAffinity", None)


def _keep_away(pod: JsonObject, rng: Random) -> None:
    _child(pod["spec"], "affinity", {})["podAntiAffinity"] = rng.choice([{}, {REQUIRED: [{"topologyKey": ""}]}])


def _tolerate(pod: JsonObject, rng: Random) -> None:
    pod["spec"]["tolerations"].insert(0, rng.choice(_TOLERATIONS))


def _change_tolerations(pod: JsonObject, rng: Random) -> None:
    name, value = rng.choice([("tolerationSeconds", 1), ("tolerationSeconds", None), ("value", "v")])
    for each in pod["spec"]["tolerations"]:
        if each.get("key") == "k":
            each[name] = value


def _drop_toleration(pod: JsonObject, rng: Random) -> None:
    del rng
    pod["spec"]["tolerations"] = [each for each in pod["spec"]["tolerations"] if each.get("key") != "k"]


def _add_container(pod: JsonObject, rng: Random) -> None:
    _child(pod["spec"], rng.choice(["containers", "initContainers"]), []).append({"name": "d", "image": "x"})


EDITS: Final[dict[str, Edit]] = {
    "remove a gate": _remove_gate,
    "remove all gates": _set("spec.schedulingGates", None, []),
    "add a gate": _add_gate,
    "node selector": _select,
    "no node selector": _set("spec.nodeSelector", None, {}),
    "add a term": _add_term,
    "append to terms": _append_to_terms,
    "rename keys": _rename_keys,
    "empty terms": _empty_terms,
    "prefer": _prefer,
    "no node affinity": _drop_node_affinity,
    "no affinity": _set("spec.affinity", None, {}),
    "pod anti-affinity": _keep_away,
    "add a toleration": _tolerate,
    "change tolerations": _change_tolerations,
    "remove a toleration": _drop_toleration,
    "image": _set("containers.image", "i:2", "", " i", "i "),
    "add a container": _add_container,
    "environment": _set("containers.env", [], [{"name": "A", "value": "c"}]),
    "limits": _set(
        "containers.resources", {"limits": {"cpu": "1000m"}, "requests": {"cpu": "1"}}, {"limits": {"cpu": "2"}}
    ),
    "security of a container": _set("containers.securityContext", {}, {"privileged": False}),
    "deadline": _set("spec.activeDeadlineSeconds", 1, 0, -1, 50, 200, None, 2**31),
    "grace period": _set("spec.terminationGracePeriodSeconds", 0, 1, 30),
    "labels": _set("metadata.labels", {"a": "c"}, {"a b": "c"}, {"a": "-"}, None),
    "annotations": _set("metadata.annotations", {"A/B c": "x"}, {"K": "v"}, {"kubernetes.io/config.mirror": "x"}),
    "deletion cost": _set("metadata.annotations", *({_COST: text} for text in ("1", "+1", "01", "-5", "9" * 11))),
    "finalizers": _set("metadata.finalizers", ["a/b"], ["bad"], ["orphan", "foregroundDeletion"], ["a b/c"]),
    "owners": _set("metadata.ownerReferences", [_OWNER], [_OWNER, _OWNER | {"uid": "w"}], [_OWNER | {"name": ""}]),
    "node": _set("spec.nodeName", "n1", "N_"),
    "scheduler": _set("spec.schedulerName", "other"),
    "system": _set("spec.os", {"name": "windows"}, {"name": "linux"}, {"name": "plan9"}, {"name": ""}),
    "security": _set("spec.securityContext", {}, {"runAsUser": 0}, {"runAsUser": 1}, {"runAsNonRoot": False}),
    "spread": _set("spec.topologySpreadConstraints", [], [{"maxSkew": 0, "topologyKey": "", "whenUnsatisfiable": "X"}]),
    "zero values": _set("spec.hostPID", False, None),
    "volumes": _set("spec.volumes", [], [{"name": "v", "emptyDir": {}}]),
    "overhead": _set("spec.overhead", {}, {"cpu": "1"}),
}


def edit_randomly(pod: JsonObject, rng: Random) -> list[str]:
    """Applies up to three edits to a pod, and returns their names."""
    names = rng.sample(list(EDITS), rng.choice([1, 1, 2, 3]))
    for name in names:
        EDITS[name](pod, rng)
    return names
