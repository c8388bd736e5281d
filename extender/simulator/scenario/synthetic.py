"""Creates nodes, namespaces and pods from the groups and templates of a scenario. Pure; random numbers are seeded."""

import copy
import json
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from random import Random
from typing import Any

from extender.simulator.apiserver.defaulting import complete_loaded, copy_topology
from extender.simulator.apiserver.kinds import kind_of
from extender.simulator.json_objects import JsonObject, labels_of, name_of, namespace_of, node_of
from extender.simulator.scenario.language import Amount, Cluster, NamespaceGroup, NodeGroup, Running, Template
from extender.wire.pods.new_pod import complete_and_check

_OURS = "placement.extender.dev/"
_REPEAT = '"repeat"'
_MOST_ERRORS = 5  # shown for one template
HOSTNAME, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"


def draw(amount: Amount, rng: Random) -> int:
    """The amount, or a random one of its range."""
    return rng.randint(*amount) if isinstance(amount, tuple) else amount


def chosen(pattern: str, names: Sequence[str]) -> list[str]:
    """The names that match one of the comma-separated patterns, such as `shop*`."""
    patterns = [part.strip() for part in pattern.split(",")]
    return [name for name in names if any(fnmatchcase(name, part) for part in patterns)]


def make_cluster(
    cluster: Cluster, templates: dict[str, Template], files: Sequence[JsonObject], rng: Random
) -> list[JsonObject]:
    """All objects at the start, with defaults: objects of files, then nodes, namespaces and running pods."""
    objects = [copy.deepcopy(obj) for obj in files]
    for nodes in cluster.nodes:
        objects += make_nodes(nodes, draw(nodes.count, rng))
    for namespaces in cluster.namespaces:
        objects += make_namespaces(namespaces, draw(namespaces.count, rng))
    named = {kind: [obj for obj in objects if obj["kind"] == kind] for kind in ("Node", "Namespace")}
    for running in cluster.running:
        objects += make_running(
            running,
            templates[running.template],
            draw(running.count, rng),
            [name_of(obj) for obj in named["Namespace"]],
            [name_of(obj) for obj in named["Node"]],
        )
    # At the end: a bound pod gets the zone of its node, and both may come from files.
    nodes_by_name = {name_of(node): node for node in named["Node"]}
    for obj in objects:
        complete_loaded(kind_of(obj), obj)
        if obj["kind"] == "Pod" and node_of(obj) in nodes_by_name:
            copy_topology(obj, nodes_by_name[node_of(obj)])
    return objects


def make_nodes(group: NodeGroup, count: int, first: int = 0) -> Iterator[JsonObject]:
    """`count` nodes of a group, numbered from `first`, in alternating zones."""
    for number in range(first, first + count):
        name = group.name.replace("{i}", str(number))
        zone = group.zone.replace("{z}", str(number % group.zones))
        resources = {"cpu": group.cpu, "memory": group.memory, "pods": str(group.pods)}
        yield {
            "kind": "Node",
            "apiVersion": "v1",
            "metadata": {"name": name, "labels": {HOSTNAME: name, ZONE: zone, **group.labels}},
            "spec": {"taints": [dict(taint) for taint in group.taints]} if group.taints else {},
            "status": {
                "capacity": resources,
                "allocatable": resources,
                "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
            },
        }


def make_namespaces(group: NamespaceGroup, count: int) -> Iterator[JsonObject]:
    """`count` namespaces of a group."""
    for number in range(count):
        name = group.name.replace("{i}", str(number))
        yield {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": name, "labels": dict(group.labels)}}


def make_running(
    group: Running, template: Template, count: int, namespaces: Sequence[str], nodes: Sequence[str]
) -> Iterator[JsonObject]:
    """`count` bound pods, distributed over the namespaces and nodes that match the group's patterns."""
    selected_namespaces, selected_nodes = chosen(group.namespaces, namespaces), chosen(group.nodes, nodes)
    prefix = group.name or f"{group.template}-old"
    for number in range(count):
        # The node changes with each pod and the namespace after a round of all nodes, so each node gets pods of several.
        namespace = selected_namespaces[number // len(selected_nodes) % len(selected_namespaces)]
        pod = make_pod(template, f"{prefix}-{number}", namespace, number)
        pod["spec"]["nodeName"] = selected_nodes[number % len(selected_nodes)]
        yield pod


def make_pod(template: Template, name: str, namespace: str, number: int) -> JsonObject:
    """One pod of a template, with its number and variant filled in."""
    requests = {"cpu": template.cpu, "memory": template.memory}
    container = {"name": "main", "image": "registry.k8s.io/pause:3.10.1", "resources": {"requests": requests}}
    spec = _numbered(template.spec, number, template.variants)
    spec.setdefault("containers", [container])
    metadata: JsonObject = {
        "name": name,
        "namespace": namespace,
        "labels": _numbered(template.labels, number, template.variants),
    }
    if template.annotations:
        metadata["annotations"] = _numbered(template.annotations, number, template.variants)
    if template.controller:
        owner = {"apiVersion": "apps/v1", "kind": template.controller, "name": name.rpartition("-")[0] or name}
        if template.variants > 1:
            owner["name"] += f"-{number % template.variants}"
        metadata["ownerReferences"] = [owner | {"uid": f"{template.controller}-{owner['name']}", "controller": True}]
    return {"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": spec}


def template_errors(templates: Mapping[str, Template]) -> list[str]:
    """Why the API server would refuse the first pod of a template, with the path of each field.

    Without this check a misspelt field would be dropped, and the scenario would test nothing.
    """
    problems: list[str] = []
    for name, template in templates.items():
        errors = complete_and_check(make_pod(template, "pod-0", "default", 0))
        problems += [f"templates.{name}.{error}" for error in errors[:_MOST_ERRORS]]
    return problems


def make_object(example: JsonObject, namespace: str, number: int) -> JsonObject:
    """One object like the example, with its number filled in."""
    made = _numbered(example, number, 1)
    made["metadata"]["namespace"] = namespace
    return made


def metadata_of_replacement(pod: JsonObject, name: str) -> JsonObject:
    """The metadata of a pod of the same template: without what the API server and the extender have set."""
    annotations = {k: v for k, v in (pod["metadata"].get("annotations") or {}).items() if not k.startswith(_OURS)}
    # Binding has copied zone and region of the node to the pod, and the replacement may land elsewhere.
    labels = {key: value for key, value in labels_of(pod).items() if not key.startswith("topology.")}
    return {"name": name, "namespace": namespace_of(pod), "labels": labels, "annotations": annotations}


def _numbered(part: JsonObject | dict[str, str], number: int, variants: int) -> JsonObject:
    # Replaced in the text, so that placeholders work in keys, names and nested values alike.
    text = json.dumps(part)
    filled: JsonObject = json.loads(text.replace("{i}", str(number)).replace("{v}", str(number % variants)))
    return _repeated(filled) if _REPEAT in text else filled


def _repeated(part: Any) -> Any:
    """Expands each `{repeat: N, each: X}`. Inner ones come first, so `{n}` is the index of the innermost list."""
    if isinstance(part, list):
        return [_repeated(item) for item in part]
    if not isinstance(part, dict):
        return part
    filled = {name: _repeated(value) for name, value in part.items()}
    if filled.keys() != {"repeat", "each"}:
        return filled
    copy = json.dumps(filled["each"])
    return json.loads(f"[{','.join(copy.replace('{n}', str(place)) for place in range(filled['repeat']))}]")
