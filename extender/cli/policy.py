"""`extender policy`: tries out policies by the code of the webhook, and writes them in the API server's own form.

`test` changes nothing. It tests pods of files, pods that workloads of files would have, or the pods of a namespace of a snapshot
or a cluster, each as if it were created again. Only the given policies apply, not the policies of the cluster. Exit codes: 0
applied or nothing to do; 1 a conflict, an invalid policy, a refused pod, or a pod that fits no node; 2 wrong usage. `export`
returns 1 if it leaves something out.
"""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import orjson
import yaml

from extender.cli.files import MOST_VALUES, read_documents, read_listed
from extender.cli.main import CommandError, Commands, say
from extender.cli.parser import add_cluster
from extender.cli.policy_at_scheduling import held_at_scheduling, nodes_document
from extender.cli.policy_groups import TestedPods, add_pods, group_lines, group_of
from extender.cli.sources import (
    add_config,
    add_output,
    cluster_of,
    decoded,
    print_json,
    print_yaml,
    read_cluster,
    settings_of,
    table,
)
from extender.features.execution.broken import watching_document
from extender.index.cluster import ClusterIndex
from extender.model.constraints.labels import Labels
from extender.model.constraints.node_affinity import NodeAffinity
from extender.model.group_placements import GroupPlacement
from extender.model.objects import DOMAINS_KIND, Namespace, Node, Object, Pod
from extender.model.policies import (
    GROUP,
    INJECTED_ANNOTATION,
    NAMESPACE_NAME_LABEL,
    NAMESPACED_KIND,
    JsonObject,
    PolicyKey,
)
from extender.model.units import counted, listed
from extender.rules.catalog import counts_of_rules
from extender.settings.configuration import Settings
from extender.simulator.apiserver.patching import JSON, apply_patch
from extender.verbs.admit.decision import AdmitVerb
from extender.verbs.admit.json_edits import drop
from extender.verbs.admit.native import NativePolicy, native_policy
from extender.verbs.admit.reviews import (
    BUILT_IN,
    POD,
    as_created,
    kind_name,
    match_nodes,
    read,
    read_patch,
    review_of,
    template_paths,
)
from extender.wire.errors import WireError
from extender.wire.objects.kinds import TOPOLOGY_DOMAINS, Kind, pods_within
from extender.wire.pods.completion import complete_pod
from extender.wire.pods.new_pod import complete_and_check
from extender.wire.pods.templates import pod_of, pods_at_once
from extender.wire.policies.policies_v1 import PolicyError, read_policy
from extender.wire.policies.policy_validation import KINDS, POLICY_KINDS
from extender.wire.snapshots import objects_of

_DEFAULT_NAMESPACE: Final = "default"
_FINISHED: Final = ("Succeeded", "Failed")


@dataclass(slots=True)
class Surroundings:
    """The known objects of a cluster: labels of namespaces, nodes (None: not known), and the pods of one namespace.

    ``objects``: nodes, pods and GroupPlacements. Needed only if a policy releases pods into the room that they leave.
    """

    namespaces: dict[str, Labels] = field(default_factory=dict)
    nodes: list[Node] | None = None
    pods: list[JsonObject] = field(default_factory=list)
    objects: list[Object] = field(default_factory=list)

    def labels(self, name: str) -> Labels | None:
        """The labels of a namespace, None where its object is not known."""
        return self.namespaces.get(name)

    def are_matched(self, affinity: NodeAffinity) -> bool | None:
        """Whether an affinity matches any node; None where the nodes are not known."""
        return None if self.nodes is None else any(affinity.matches(node.name, node.labels) for node in self.nodes)


def add_parser(commands: Commands) -> None:
    """Adds the parser."""
    policy = commands.add_parser(
        "policy",
        help="try out scheduling policies",
        examples=["test policy.yaml", "export policy.yaml --as MutatingAdmissionPolicy"],
    )
    actions = policy.add_subparsers(title="actions", metavar="ACTION", required=True)
    parser = actions.add_parser(
        "test",
        help="show what policies would do to pods (-o yaml: the resulting pods), and which nodes still match",
        examples=["policy.yaml --pod pod.yaml -n shop"],
    )
    parser.add_argument("policies", metavar="POLICY", nargs="+", help='a file with policies, "-" for standard input')
    parser.add_argument("--pod", metavar="FILE", action="append", default=[], help="a file with pods or workloads")
    parser.add_argument(
        "-n",
        "--namespace",
        metavar="NS",
        default="",
        help="with --pod: for pods and policies without a namespace (default); without: test the pods of this namespace",
    )
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--snapshot", metavar="FILE", help="kubectl get nodes,namespaces,pods -A -o json")
    add_cluster(parser, source, "read nodes, namespaces and pods from this cluster")
    add_config(parser)
    add_output(parser)
    parser.set_defaults(run=run_test, wrong_usage=parser.error)
    _add_export(actions)


def _add_export(actions: Commands) -> None:
    parser = actions.add_parser(
        "export",
        help="write policies in a form of the API server's own",
        examples=["policy.yaml --as MutatingAdmissionPolicy"],
    )
    parser.add_argument("policies", metavar="POLICY", nargs="+", help='a file with policies, "-" for standard input')
    parser.add_argument(
        "--as", dest="form", choices=["MutatingAdmissionPolicy"], required=True, help="the kind to write"
    )
    add_config(parser)
    parser.set_defaults(run=run_export)


def run_test(arguments: argparse.Namespace) -> int:
    """Returns 0 or 1. Wrong usage ends the process with 2."""
    if not arguments.pod and not arguments.namespace:
        arguments.wrong_usage("which pods: --pod FILE, or --namespace NS with --snapshot or --kubeconfig")
    if not arguments.pod and not (arguments.snapshot or arguments.kubeconfig):
        arguments.wrong_usage("--namespace without --pod needs --snapshot or --kubeconfig")
    settings = settings_of(arguments)
    # `rejects_excess=False`: limits of constraints are about the service, and would hide what the policies do.
    index = ClusterIndex(settings.rules, counts_of_rules(), rejects_excess=False)
    policies = _policies(arguments.policies, settings, index, arguments.namespace or _DEFAULT_NAMESPACE)
    known = _surroundings(arguments, settings, any(policy.release for policy in index.policies))
    for name, labels in known.namespaces.items():
        index.upsert(Namespace(name, labels))
    # After all policies of all files: their order in the files must not matter.
    verb = AdmitVerb(index.policies, known, settings, None if known.nodes is None else known, index.domains)
    for policy in policies:
        _review(policy, verb)
    objects = _objects(arguments, known)
    # The API server gives every namespace the label kubernetes.io/metadata.name, by which policies may select it.
    for name in {_namespace_of(obj) for obj in objects} - known.namespaces.keys():  # it has its name alone
        known.namespaces[name] = {NAMESPACE_NAME_LABEL: name}
        index.upsert(Namespace(name, known.namespaces[name]))
    tested = [_tested(verb, obj, known, settings, index, is_new=bool(arguments.pod)) for obj in objects]
    _add_groups(tested, known, settings, index)
    _write(policies, tested, arguments.output)
    return int(any(policy.errors for policy in policies) or not all(map(_is_good, tested)))


def _review(policy: PolicyFound, verb: AdmitVerb) -> None:
    """Adds what the webhook would say of a policy that is created now."""
    if not isinstance(policy.value.get("metadata"), dict):
        return
    response = verb.decide(review_of(policy.value, _namespace_of(policy.value)))["response"]
    policy.warnings += response.get("warnings") or ()
    if not policy.errors and not response["allowed"]:
        causes = response["status"].get("details", {}).get("causes", [])
        policy.errors += [f"{cause['field']}: {cause['message']}" for cause in causes]


def run_export(arguments: argparse.Namespace) -> int:
    """Prints the objects as YAML, and on standard error what they leave out. Returns 1 if they do."""
    settings = settings_of(arguments)
    index = ClusterIndex(settings.rules, counts_of_rules(), rejects_excess=False)
    policies, table = _policies(arguments.policies, settings, index), index.policies
    documents: list[JsonObject] = []
    is_whole = True
    for given in policies:
        policy = table.get(given.key)
        if policy is None:
            native = NativePolicy((), tuple(given.errors), ())
        else:
            native = native_policy(policy, given.value["spec"], settings.policies.exempt)
        documents += native.documents
        is_whole &= not native.left_out
        for title, lines in (("left out", native.left_out), ("note", native.notes)):
            for line in lines:
                say(f"{given.path}: {given.key}: {title}: {line}", to=sys.stderr)
    if documents:
        print_yaml(*documents)
    return 0 if is_whole else 1


def _policies(paths: Iterable[str], settings: Settings, index: ClusterIndex, namespace: str = "") -> list[PolicyFound]:
    """The policies of the files. They are added to the index, as in the service, and so are TopologyDomains.

    ``namespace``: the namespace of policies that name none.
    """
    policies, table = list[PolicyFound](), index.policies
    for path in paths:
        for document in read_documents(path, MOST_VALUES):
            group = str(document.get("apiVersion")).rpartition("/")[0]
            if group == GROUP and document.get("kind") == DOMAINS_KIND:
                index.upsert(_decoded(path, TOPOLOGY_DOMAINS, document))
                continue
            if (group, str(document.get("kind"))) not in POLICY_KINDS:
                raise CommandError(f"{path}: kind: expected {' or '.join(KINDS)}, got {document.get('kind')}")
            warnings = []
            if namespace and _lacks_namespace(document):
                document["metadata"]["namespace"] = namespace
                warnings.append(f"metadata.namespace: is absent: tested in the namespace {namespace}")
            try:
                policy = read_policy(document, settings.limits)
                entry = PolicyFound(path, policy.key, document, warnings=warnings)
                table.put(policy)
            except PolicyError as error:
                entry = PolicyFound(path, error.invalid.key, document, list(error.invalid.errors), warnings)
                table.put(error.invalid)
            # The table keeps one policy for each key: the second would silently replace the first.
            if any(entry.key == other.key for other in policies):
                raise CommandError(f"{path}: {entry.key} is given twice")
            policies.append(entry)
    return policies


def _lacks_namespace(policy: JsonObject) -> bool:
    metadata = policy.get("metadata")
    return policy["kind"] == NAMESPACED_KIND and isinstance(metadata, dict) and not metadata.get("namespace")


def _objects(arguments: argparse.Namespace, known: Surroundings) -> list[JsonObject]:
    """The objects to test, each with a namespace. Raises CommandError where there are none."""
    if not arguments.pod:
        if not known.pods:
            raise CommandError(f"namespace {arguments.namespace}: no pods that are not finished")
        return known.pods
    objects = [obj for path in arguments.pod for obj in _objects_of(path)]
    namespace = arguments.namespace or _DEFAULT_NAMESPACE
    # The object's own namespace, if it has one, is later in the mapping and so replaces the default.
    return [{**obj, "metadata": {"namespace": namespace, **obj["metadata"]}} for obj in objects]


def _objects_of(path: str) -> list[JsonObject]:
    objects = read_documents(path)
    for obj in objects:
        if not isinstance(obj.get("metadata"), dict):
            raise CommandError(f"{path}: metadata: expected an object")
        if not isinstance(obj.get("spec"), dict):
            raise CommandError(f"{path}: spec: expected an object")
    return [as_created(obj) if obj.get("kind") == "Pod" else obj for obj in objects]


def _tested(
    verb: AdmitVerb,
    obj: JsonObject,
    known: Surroundings,
    settings: Settings,
    index: ClusterIndex,
    *,
    is_new: bool,
    count: int = 1,
) -> JsonObject:
    """``is_new``: the object comes from a file, so the API server may refuse it. ``count``: how many copies are made."""
    # In the order of the API server: (1) admission by the webhook's own code; (2) the validation of the resulting pod, only for
    # an object from a file, because an existing one has passed it; (3) the nodes before and after, for a pod; (4) the directives
    # that apply at scheduling; (5) for a workload each pod that its template makes, in the same way.
    # DaemonSet pods are exempt if the DaemonSet controller creates them. The test takes the part of that account.
    creator = next(iter(settings.policies.exemptions.daemon_sets_by), "")  # only pods of a DaemonSet need it
    admission = verb.admit(review_of(obj, _namespace_of(obj), creator))
    response, metadata = admission.review["response"], obj["metadata"]
    after = apply_patch(obj, read_patch(response), JSON) if response["allowed"] else None
    refusal = "" if response["allowed"] else str(response["status"]["message"])
    before, pod = _pod(obj, settings), None
    if after is not None and is_new and (errors := _errors(after)):
        after, refusal = None, f"the API server refuses it: {errors}"
    if after is not None:
        pod = _pod(after, settings)
    nodes = None if pod is None or known.nodes is None else nodes_document(match_nodes(pod, known.nodes))
    if nodes is not None and before is not None:
        nodes["matchingBefore"] = list(match_nodes(before, known.nodes or ()).matching)
    name = metadata.get("name") or f"{metadata.get('generateName') or ''}*"
    return {
        "object": f"{obj.get('kind')} {metadata['namespace']}/{name}",
        "count": count,
        "result": admission.result,
        "refusal": refusal,
        "fields": [
            {"field": name, "policy": str(change.policy.key)}
            | ({"replaced": change.replaced[name]} if name in change.replaced else {})
            for change in admission.changes
            for name in change.fields()
        ],
        "conflicts": [
            {
                "policy": str(conflict.policy),
                "field": conflict.field,
                "message": conflict.message,
                "resolution": str(conflict.resolution),
            }
            for change in (*admission.changes, *admission.audited)
            for conflict in change.conflicts
        ],
        "warnings": response.get("warnings") or [],
        "notes": response.get("auditAnnotations") or {},  # what the audit log of an API server would have
        "nodes": nodes,
        "scheduling": None if pod is None else held_at_scheduling(pod, index, known.nodes, settings),
        "execution": None if pod is None else watching_document(pod.signature, index.view, settings),
        "admitted": after,
        "given": obj,
        "group": None,
        "pods": [
            _tested(verb, made, known, settings, index, is_new=is_new, count=pods_at_once(obj))
            for made in ([] if after is None else _made_pods(after, settings))
        ],
    }


def _errors(obj: JsonObject) -> str:
    """Why the API server refuses a pod; empty for another object."""
    if obj.get("kind") != "Pod":
        return ""
    errors = complete_and_check(deepcopy(obj))
    more = f"; and {len(errors) - _SHOWN} more errors" if len(errors) > _SHOWN else ""
    return "; ".join(map(str, errors[:_SHOWN])) + more


def _made_pods(workload: JsonObject, settings: Settings) -> list[JsonObject]:
    """A pod of each template of a workload; none of a pod and of other objects."""
    group, _, version = str(workload.get("apiVersion") or "").rpartition("/")
    kind = kind_name({"group": group, "version": version, "kind": workload.get("kind")})
    if kind == POD or (kind not in BUILT_IN and kind not in settings.policies.templates):
        return []
    paths = template_paths(kind, workload, settings.policies.templates, settings.policies.max_templates)
    return [pod_of(workload, read(workload, path)) for path in paths]


def _add_groups(tested: Iterable[JsonObject], known: Surroundings, settings: Settings, index: ClusterIndex) -> None:
    """Adds to each tested pod the group that it waits in. O(pods of the cluster), if a policy releases pods."""
    if not any(policy.release for policy in index.policies):
        return
    admitted = [
        document for outer in tested for document in (outer, *outer["pods"]) if document["admitted"] is not None
    ]
    pods = [(document, pod) for document in admitted if (pod := _pod(document["admitted"], settings)) is not None]
    add_pods(index, known.objects, [TestedPods(pod, document["count"]) for document, pod in pods])
    for document, pod in pods:
        document["group"] = group_of(pod, index, settings, is_known=known.nodes is not None)


def _is_good(document: JsonObject) -> bool:
    """Whether the object is admitted without a conflict or an error, and fits a node if the nodes are known."""
    nodes, held = document["nodes"], document["scheduling"]
    # A pod that fits no node is created without an error, and stays pending for ever.
    if nodes is not None and not nodes["matching"]:
        return False
    if held is not None and (held["refused"] or held["matching"] == []):
        return False
    if not all(map(_is_good, document["pods"])):
        return False
    return document["admitted"] is not None and not {"conflicts", "errors"} & document["notes"].keys()


def _pod(obj: JsonObject, settings: Settings) -> Pod | None:
    """The pod as the index would read it from a cluster; None for another object. Raises CommandError."""
    if obj.get("kind") != "Pod":
        return None
    obj = deepcopy(obj)
    complete_pod(obj)
    obj["metadata"].setdefault("name", f"{obj['metadata'].get('generateName') or ''}*")
    return _decoded(f"pod {obj['metadata'].get('name')}", pods_within(settings.limits), obj)


def _decoded(what: str, kind: Kind[T], obj: JsonObject) -> T:
    try:
        return kind.decode_object(orjson.dumps(obj))
    except WireError as error:
        raise CommandError(f"{what}: {error}") from None


def _namespace_of(obj: JsonObject) -> str:
    return str(obj["metadata"].get("namespace") or "")


# ---- the cluster


def _surroundings(arguments: argparse.Namespace, settings: Settings, releases: bool) -> Surroundings:  # noqa: FBT001 (of one caller)
    """``releases``: a policy releases pods, so that all pods of the cluster are needed."""
    wanted = "" if arguments.pod else arguments.namespace
    if arguments.snapshot:
        source, body = arguments.snapshot, read_listed(arguments.snapshot)
        return _of_list(source, body, wanted, settings, releases)
    if not arguments.kubeconfig:
        return Surroundings()
    paths = {("v1", "Node"): "/api/v1/nodes", ("v1", "Namespace"): "/api/v1/namespaces"}
    if releases:
        paths["v1", "Pod"] = "/api/v1/pods"
    elif wanted:
        paths["v1", "Pod"] = f"/api/v1/namespaces/{wanted}/pods"
    return _of_list(arguments.kubeconfig, read_cluster(cluster_of(arguments), paths), wanted, settings, releases)


def _of_list(source: str, body: bytes, namespace: str, settings: Settings, releases: bool) -> Surroundings:  # noqa: FBT001 (of one caller)
    snapshot = decoded(source, body, settings.limits)
    surroundings = Surroundings(nodes=[obj for obj in snapshot.objects if isinstance(obj, Node)])
    surroundings.namespaces = {obj.name: obj.labels for obj in snapshot.objects if isinstance(obj, Namespace)}
    if releases:
        surroundings.objects = [obj for obj in snapshot.objects if isinstance(obj, Node | Pod | GroupPlacement)]
    if namespace:
        surroundings.pods = [as_created(obj) for obj in objects_of(body) if _is_pod_of(obj, namespace)]
    return surroundings


def _is_pod_of(obj: JsonObject, namespace: str) -> bool:
    """Whether an object is a pod of the namespace, not finished, with a spec."""
    metadata, spec, status = obj.get("metadata"), obj.get("spec"), obj.get("status")
    if obj["kind"] != "Pod":
        return False
    if not isinstance(metadata, dict) or not isinstance(spec, dict) or metadata.get("namespace") != namespace:
        return False
    return not isinstance(status, dict) or status.get("phase") not in _FINISHED


T = TypeVar("T", bound=Object)
_SHOWN: Final = 5  # nodes by name


@dataclass(slots=True)
class PolicyFound:
    """A policy of a file, with its errors or warnings."""

    path: str
    key: PolicyKey
    value: JsonObject
    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def document(self) -> JsonObject:
        """For scripts."""
        return {"file": self.path, "policy": str(self.key), "errors": self.errors, "warnings": self.warnings}


def _write(policies: Sequence[PolicyFound], objects: Sequence[JsonObject], form: str) -> None:
    """Prints it. Problems of policies go to standard error, unless they are part of a JSON document."""
    if form == "json":
        documents = [_without_given(document) for document in objects]
        print_json({"policies": [policy.document() for policy in policies], "objects": documents})
        return
    for policy in policies:
        for text in (*policy.errors, *(f"warning: {warning}" for warning in policy.warnings)):
            say(f"{policy.path}: {policy.key}: {text}", to=sys.stderr)
    if form == "yaml":
        print_yaml(*(document["admitted"] for document in objects if document["admitted"] is not None))
        every = [document for outer in objects for document in (outer, *outer["pods"])]
        say(*(line for document in every for line in _outcome(document, _SHOWN)), to=sys.stderr)
        return
    for tested in objects:
        say(*_lines(tested, sys.maxsize if form == "wide" else _SHOWN), "")
    changed = sum(any(document["result"] == "mutated" for document in (outer, *outer["pods"])) for outer in objects)
    refused = sum(any(document["admitted"] is None for document in (outer, *outer["pods"])) for outer in objects)
    say(f"{counted(len(objects), 'object')}: {changed} changed, {refused} refused")


def _without_given(document: JsonObject) -> JsonObject:
    """The document for scripts, which have the object themselves."""
    return {**drop(document, ("given",)), "pods": [_without_given(pod) for pod in document["pods"]]}


def _lines(document: JsonObject, most: int) -> Iterator[str]:
    """``most``: so many nodes by name."""
    before = document["given"]
    yield document["object"]
    if document["admitted"] is not None:
        # Without the record of what was injected, one long line for machines.
        old, new = _dump(before).splitlines(), _dump(_without_record(before, document["admitted"])).splitlines()
        yield from difflib.unified_diff(old, new, "before", "after", lineterm="")
    rows = [(change["field"], change["policy"]) for change in document["fields"]]
    yield from table([("FIELD", "POLICY"), *rows]) if rows else ()
    yield from (f"  {line}" for line in _outcome(document, most))
    for pod in document["pods"]:
        yield f"its pods, such as the first of {pod['count']}:" if pod["count"] > 1 else "its pod:"
        yield from (f"  {line}" for line in _lines(pod, most))


def _outcome(document: JsonObject, most: int) -> Iterator[str]:
    notes, nodes, held = document["notes"], document["nodes"], document["scheduling"]
    if document["refusal"]:
        yield f"refused: {document['refusal']}"
    elif document["result"] == "allowed":
        text = "the template stays as it is" if document["pods"] else "nothing to do"
        yield f"{text}: {notes.get('skipped') or 'no policy changes it at admission'}"
    for conflict in document["conflicts"]:
        yield f"conflict: {conflict['policy']}: {conflict['field']}: {conflict['message']} ({conflict['resolution']})"
    for name, title in (("audited", "mode Audit, not applied"), ("errors", "error")):
        if name in notes:
            yield f"{title}: {notes[name]}"
    if nodes is not None:
        yield _nodes(nodes, most)
    yield from _held_lines(held, most) if held is not None else ()
    if (watched := document["execution"]) is not None:
        yield f"watched while it runs: {', '.join(watched['constraints'])} by {watched['policy']} ({watched['mode']})"
    yield from group_lines(document["group"]) if document["group"] is not None else ()


def _held_lines(held: JsonObject, most: int) -> Iterator[str]:
    yield f"held at scheduling: {', '.join(held['directives']) or 'no node'} by {', '.join(held['policies'])}"
    if held["refused"]:
        yield f"refused at scheduling: {held['refused']}"
    if held["scores"]:
        yield f"preferred at scheduling: {listed([f'{name} {score}' for name, score in held['scores'].items()], most=most)}"
    if held["matching"] is not None:
        yield f"at scheduling, {_nodes(held, most)}"


def _nodes(nodes: JsonObject, most: int) -> str:
    matching, before = nodes["matching"], nodes.get("matchingBefore")
    was = f", {len(before)} before" if before is not None else ""
    reasons = "".join(f"; {count} {reason}" for reason, count in sorted(nodes["rejected"].items()))
    return f"nodes: {len(matching)} of {nodes['total']} match{was}{': ' if matching else ''}{listed(matching, most=most)}{reasons}"


def _without_record(before: JsonObject, after: JsonObject) -> JsonObject:
    path = ("metadata", "annotations")
    after = drop(after, (*path, INJECTED_ANNOTATION))
    has_annotations = after["metadata"].get("annotations") or "annotations" in before["metadata"]
    return after if has_annotations else drop(after, path)


def _dump(value: Any) -> str:
    return yaml.safe_dump(value, sort_keys=False, width=1000)
