"""The rows of policies: each field by the bounds of its schema, and how many there are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

from deploy.policies.crds import Schema
from extender.simulator.apiserver.kinds import key_of, kind_of
from extender.simulator.apiserver.server import ApiServer
from extender.simulator.json_objects import JsonObject
from extender.verbs.admit.reviews import review_of
from tests.costs.building import (
    API_VERSION,
    LONG,
    NAMESPACE,
    OF_NODES,
    PLATFORM,
    TENANT,
    Row,
    a_constraint,
    a_node,
    a_pod,
    a_term,
    fixed,
    node_terms,
    with_meta,
)
from tests.costs.fields import policy_fields
from tests.costs.measuring import Play
from tests.simulator import plain
from tests.simulator.plain import HOSTNAME, ZONE


def policy(name: str, namespace: str = "", **spec: Any) -> JsonObject:
    """A policy that selects every pod, at every moment but release."""
    kind = "PodSchedulingPolicy" if namespace else "ClusterPodSchedulingPolicy"
    whole = {"podSelector": {}, **({} if namespace else {"namespaceSelector": {}}), "when": ["Admission", "Scheduling"]}
    meta = {"name": name, "generation": 1, **({"namespace": namespace} if namespace else {})}
    return {"kind": kind, "apiVersion": API_VERSION, "metadata": meta, "spec": whole | spec}


def among_policies(make: Callable[[int], JsonObject]) -> Callable[[int], Play]:
    """Policies come; a pod is reviewed and asked about, a further policy is reviewed, and one changes."""

    def play(n: int) -> Play:
        found, incoming = [make(at) for at in range(n)], a_pod()
        again = with_meta(found[-1], name="last")

        def change(api: ApiServer) -> None:
            kind = kind_of(found[0])
            api.operations.change(kind, key_of(kind, found[0]), lambda each: each["spec"].update(priority=7))

        reviews = [review_of(incoming, TENANT), review_of(again, again["metadata"].get("namespace", ""))]
        return Play([*found, incoming], requested=[incoming], reviews=reviews, changes=[change])

    return play


def hundred_terms(at: int) -> JsonObject:
    terms = [
        {"matchExpressions": [{"key": f"key-{at}-{number}", "operator": "In", "values": ["v"]}]} for number in range(64)
    ]
    return policy(f"policy-{at}", affinity=node_terms(terms), targets="Both")


def sample(schema: Schema, path: str, number: int) -> Any:
    """A value that a schema allows, another one for each number."""
    made = next((each for end, each in _SAMPLES.items() if path.endswith(end)), None)
    if made is not None:
        return made(number)
    match schema:
        case {"type": "object", "properties": fields}:
            return {name: sample(fields[name], f"{path}.{name}", number) for name in schema.get("required", ())}
        case {"enum": choices}:
            return choices[number % len(choices)]
        case {"type": "string", "pattern": pattern} if pattern.startswith("^[A-Z]"):
            return f"X{number}"
        case {"type": "string"}:
            return f"x{number}"
    return schema.get("minimum", 1)


_SAMPLES: Final[dict[str, Callable[[int], Any]]] = {
    "matchExpressions[]": lambda at: {"key": f"key-{at}", "operator": "NotIn", "values": ["v"]},
    "matchFields[]": lambda at: {"key": "metadata.name", "operator": "NotIn", "values": [f"node-{at}"]},
    "tolerations[]": lambda at: {"key": f"key-{at}", "operator": "Exists"},
    "topologySpreadConstraints[]": lambda at: a_constraint(0) | {"topologyKey": f"key-{at}"},
    "podAffinityTerm": lambda at: a_term({"matchLabels": {"app": f"app-{at}"}}),
    "required[]": lambda at: a_term({"matchLabels": {"app": f"app-{at}"}}),
    "preference": lambda at: {"matchExpressions": [{"key": f"key-{at}", "operator": "NotIn", "values": ["v"]}]},
    "nodeSelectorTerms[]": lambda at: {"matchExpressions": [{"key": f"key-{at}", "operator": "In", "values": ["v"]}]},
    "noRoom[]": lambda at: {"action": ("Preempt", "SeveralDomains", "Wait")[at]},
    "ownerKinds[]": lambda at: f"Kind{at}",
    "matchLabelKeys[]": lambda at: f"key-{at}",
    # No value is in two domains, and the first one has all that grow, as those that are preferred must be among them.
    "domains[]": lambda at: {"name": f"x{at}", "values": [f"v{at}"] if at else [f"x{each}" for each in range(64)]},
}


def grown_policy(path: str, n: int) -> JsonObject:
    """A policy of which one list or map has so many elements."""
    names = path.removeprefix("policy.spec.").split(".")
    schemas = dict(policy_fields())
    value: Any = (
        dict.fromkeys((f"key-{at}" for at in range(n)), "1" if path.endswith("resources{}") else "v")
        if path.endswith("{}")
        else [sample(schemas[path]["items"], path, at) for at in range(n)]
    )
    for at in reversed(range(len(names))):
        value = {LONG.get(name := names[at].rstrip("[]{}"), name): value}
        if at and names[at - 1].endswith("[]"):
            above = ".".join(("policy", "spec", *names[:at]))
            value = [_merged(sample(schemas[above]["items"], above, 0), value)]
        elif at and names[at - 1] == "podAffinityTerm":
            value = _merged(a_term(), value)
    if "release" in value:
        value["when"] = ["Release"]
        value["release"].setdefault("topology", [ZONE])
    if "execution" in value:
        value["when"] = ["Execution"]
    elif names[0] == "when[]":
        value.setdefault("release", {"topology": [ZONE]})
        value["execution"] = {}
    return policy("grown", **value)


def _merged(one: JsonObject, other: JsonObject) -> JsonObject:
    found = dict(one)
    for name, value in other.items():
        below = found.get(name)
        found[name] = _merged(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return found


def _field_rows() -> Iterator[Row]:
    texts = []
    for path, schema in policy_fields():
        if not path.endswith(("[]", "{}")):
            texts.append(path)
            continue
        most = schema.get("maxItems") or schema.get("maxProperties") or len(schema["items"]["enum"])
        name, limit = (
            path.replace("policy.spec.", "policy: spec."),
            "CRD: maxItems" if path.endswith("[]") else "CRD: maxProperties",
        )
        yield Row(name, (path,), limit, fixed(most), NAMESPACE, partial(_one_grown, path))
    yield Row(
        "policy: texts and numbers",
        tuple(texts),
        "CRD: maxLength, minimum, maximum",
        fixed(63),
        NAMESPACE,
        lambda n: among_policies(lambda _: policy("p", priorityClassName="x" * n, schedulerName="x" * n))(1),
    )


def _one_grown(path: str, n: int) -> Play:
    return among_policies(lambda _: grown_policy(path, n))(1)


def _full_domains(n: int) -> Play:
    """Nodes without room, of which a policy keeps those of eight keys out of the minimum; a pod that is spread over each of them."""
    keys = [HOSTNAME, *(f"key-{at}" for at in range(7))]
    nodes = [a_node(10_000 + at) for at in range(n)]
    for at, each in enumerate(nodes):
        each["metadata"]["labels"] |= dict.fromkeys(keys[1:], f"v{at}")
        each["status"] = {"allocatable": {"cpu": "1", "pods": "0"}}
    found = policy("full", spread=[{"topologyKey": key, "fullDomains": "Exclude"} for key in keys])
    incoming = a_pod(
        topologySpreadConstraints=[plain.spread(key, skew=1, labels={"app": "app-0"}) for key in keys], cpu="2"
    )
    return Play([found, *nodes, incoming], requested=[incoming, incoming, incoming])


def policy_rows() -> list[Row]:
    return [
        *_field_rows(),
        Row(
            "full domains of a spread constraint × nodes",
            ("policy.spec.spread[]", "Node[]"),
            OF_NODES,
            fixed(5000),
            PLATFORM,
            _full_domains,
        ),
        Row(
            "policies of a namespace, empty",
            ("PodSchedulingPolicy[]",),
            "policies.maxPerNamespace",
            lambda settings: settings.policies.max_per_namespace,
            NAMESPACE,
            among_policies(lambda at: policy(f"policy-{at}", TENANT)),
        ),
        Row(
            "policies of a namespace, with selectors",
            ("PodSchedulingPolicy[]",),
            "policies.maxPerNamespace",
            lambda settings: settings.policies.max_per_namespace,
            NAMESPACE,
            among_policies(lambda at: policy(f"policy-{at}", TENANT, nodeSelector={f"key-{at}": "v"})),
        ),
        Row(
            "policies of the cluster, empty",
            ("ClusterPodSchedulingPolicy[]",),
            "policies.maxOfCluster",
            lambda settings: settings.policies.max_of_cluster,
            PLATFORM,
            among_policies(lambda at: policy(f"policy-{at}")),
        ),
        Row(
            "policies of the cluster × terms",
            ("ClusterPodSchedulingPolicy[]",),
            "policies.maxOfCluster",
            lambda settings: settings.policies.max_of_cluster,
            PLATFORM,
            among_policies(hundred_terms),
        ),
        Row(
            "a policy changes × policies",
            ("ClusterPodSchedulingPolicy[]",),
            "policies.maxOfCluster",
            lambda settings: settings.policies.max_of_cluster,
            PLATFORM,
            among_policies(lambda at: policy(f"policy-{at}", podSelector={"matchLabels": {"app": f"app-{at}"}})),
        ),
    ]
