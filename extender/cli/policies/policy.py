"""`extender policy`: tries out policies by the code of the webhook, and writes them in the API server's own form.

`test` changes nothing. The pods are those of files, or those of a namespace of a snapshot or a cluster, each as if it were created again. Only
the policies that are given apply, not those of the cluster. Exit codes: 0 applied or nothing to do; 1 a conflict, an
invalid policy, a refused pod, or a pod that fits no node; 2 wrong usage. `export` gives 1 where it
leaves something out.
"""

import argparse
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import orjson
import yaml

from extender.cli.command import CommandError, Commands
from extender.cli.files import access_to, read_bytes, read_documents, read_settings
from extender.cli.policies.policy_report import FORMATS, PolicyFound, Report, Tested
from extender.cli.policies.policy_scheduling import held_at_scheduling
from extender.compose.process import run_on_loop
from extender.index.cluster import ClusterIndex
from extender.index.policies import PolicyTable
from extender.kube.errors import KubeError
from extender.kube.listing import read_list
from extender.kube.session import open_session
from extender.kube.timing import SystemClock
from extender.model.constraints.labels import Labels
from extender.model.constraints.node_affinity import NodeAffinity
from extender.model.objects import Namespace, Node, Pod
from extender.model.policies import JsonObject
from extender.rules.catalog import counts_of_rules
from extender.settings.configuration import Settings
from extender.settings.connections import Kube
from extender.simulator.apiserver.patching import JSON, apply_patch
from extender.verbs.admit.decision import AdmitVerb
from extender.verbs.admit.native import NativePolicy, native_policy
from extender.verbs.admit.reviews import NodeMatch, as_created, match_nodes, read_patch, review_of
from extender.wire.errors import WireError
from extender.wire.manifests import decode_snapshot
from extender.wire.objects.kinds import pods_within
from extender.wire.policies.policies_v1 import PolicyError, read_policy
from extender.wire.policies.policy_validation import KINDS, is_policy

_DEFAULT_NAMESPACE: Final = "default"
_FINISHED: Final = ("Succeeded", "Failed")


@dataclass(slots=True)
class Surroundings:
    """What is known of a cluster: the labels of its namespaces, its nodes (None: not known), and the pods of one namespace."""

    namespaces: dict[str, Labels] = field(default_factory=dict)
    nodes: list[Node] | None = None
    pods: list[JsonObject] = field(default_factory=list)

    def labels(self, name: str) -> Labels | None:
        """The labels of a namespace, None where its object is not known."""
        return self.namespaces.get(name)

    def matching(self, affinity: NodeAffinity) -> int | None:
        """How many nodes an affinity matches; None where the nodes are not known."""
        if self.nodes is None:
            return None
        return sum(affinity.matches(node.name, node.labels) for node in self.nodes)


def add_parser(commands: Commands) -> None:
    """Adds the parser."""
    policy = commands.add_parser("policy", help="try out scheduling policies")
    actions = policy.add_subparsers(title="actions", metavar="ACTION", required=True)
    parser = actions.add_parser("test", help="show what policies would do to pods, and which nodes still match")
    parser.add_argument("policies", metavar="POLICY", nargs="+", help='a file with policies, "-" for standard input')
    parser.add_argument("--pod", metavar="FILE", action="append", default=[], help="a file with pods or workloads")
    parser.add_argument(
        "-n",
        "--namespace",
        metavar="NS",
        default="",
        help="with --pod: for pods without a namespace (default); without: test the pods of this namespace",
    )
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--snapshot", metavar="FILE", help="kubectl get nodes,namespaces,pods -A -o json")
    source.add_argument("--kubeconfig", metavar="FILE", help="read nodes, namespaces and pods from this cluster")
    parser.add_argument("--config", metavar="FILE", help="configuration of the extender (default: all defaults)")
    parser.add_argument("-o", "--output", choices=FORMATS, default="table", help="yaml: the resulting pods")
    parser.set_defaults(run=run_test, wrong_usage=parser.error)
    _add_export(actions)


def _add_export(actions: Commands) -> None:
    """Adds the parser of `export`."""
    parser = actions.add_parser("export", help="write policies in a form of the API server's own")
    parser.add_argument("policies", metavar="POLICY", nargs="+", help='a file with policies, "-" for standard input')
    parser.add_argument(
        "--as", dest="form", choices=["MutatingAdmissionPolicy"], required=True, help="the kind to write"
    )
    parser.add_argument("--config", metavar="FILE", help="configuration of the extender (default: all defaults)")
    parser.set_defaults(run=run_export)


def run_test(arguments: argparse.Namespace) -> int:
    """Returns 0 or 1. Wrong usage ends the process with 2."""
    if not arguments.pod and not arguments.namespace:
        arguments.wrong_usage("which pods: --pod FILE, or --namespace NS with --snapshot or --kubeconfig")
    if not arguments.pod and not (arguments.snapshot or arguments.kubeconfig):
        arguments.wrong_usage("--namespace without --pod needs --snapshot or --kubeconfig")
    settings = read_settings(arguments.config) if arguments.config else Settings()
    known = _surroundings(arguments, settings)
    index = ClusterIndex(settings.rules, counts_of_rules(), rejects_excess=False)
    for name, labels in known.namespaces.items():
        index.upsert(Namespace(name, labels))
    table, policies = index.policies, _policies(arguments.policies, settings, index.policies)
    nodes, releases = None if known.nodes is None else known, settings.release.enabled
    verb = AdmitVerb(table, known, settings.policies, settings.limits, nodes=nodes, releases=releases)
    report = Report(policies)
    for each in policies:
        if not each.errors:
            response = verb.decide(review_of(each.value, _namespace_of(each.value)))["response"]
            each.warnings += response.get("warnings") or ()
    for obj in _objects(arguments, known):
        report.tested.append(_try(verb, obj, known, settings, index))
    report.write(arguments.output)
    return 0 if report.is_good else 1


def run_export(arguments: argparse.Namespace) -> int:
    """Prints the objects as YAML, and on standard error what they leave out. Returns 1 if they do."""
    settings = read_settings(arguments.config) if arguments.config else Settings()
    table = PolicyTable()
    policies = _policies(arguments.policies, settings, table)
    documents: list[JsonObject] = []
    is_whole = True
    for each in policies:
        policy = table.get(each.key)
        if policy is None:
            found = NativePolicy((), tuple(each.errors), ())
        else:
            found = native_policy(policy, each.value["spec"], settings.policies.exempt_namespaces)
        documents += found.documents
        is_whole &= not found.left_out
        for title, lines in (("left out", found.left_out), ("note", found.notes)):
            for line in lines:
                print(f"{each.path}: {each.key}: {title}: {line}", file=sys.stderr)
    if documents:
        print(yaml.safe_dump_all(documents, sort_keys=False, width=1000), end="")
    return 0 if is_whole else 1


def _policies(paths: Iterable[str], settings: Settings, table: PolicyTable) -> list[PolicyFound]:
    """The policies of the files. The table gets them, the invalid ones apart, as in the service."""
    found = list[PolicyFound]()
    for path in paths:
        for document in read_documents(path):
            group = str(document.get("apiVersion")).rpartition("/")[0]
            if not is_policy(group, str(document.get("kind"))):
                raise CommandError(f"{path}: kind: expected {' or '.join(KINDS)}, got {document.get('kind')}")
            try:
                policy = read_policy(document, settings.limits)
                each = PolicyFound(path, policy.key, document)
                table.put(policy)
            except PolicyError as error:
                each = PolicyFound(path, error.invalid.key, document, errors=list(error.invalid.errors))
                table.put_invalid(error.invalid)
            if any(each.key == other.key for other in found):
                raise CommandError(f"{path}: {each.key} is given twice")
            found.append(each)
    return found


def _objects(arguments: argparse.Namespace, known: Surroundings) -> list[JsonObject]:
    """The objects to test, each with a namespace. Raises CommandError where there are none."""
    if not arguments.pod:
        if not known.pods:
            raise CommandError(f"namespace {arguments.namespace}: no pods that are not finished")
        return known.pods
    found = [each for path in arguments.pod for each in _objects_of(path)]
    namespace = arguments.namespace or _DEFAULT_NAMESPACE
    return [{**each, "metadata": {"namespace": namespace, **each["metadata"]}} for each in found]


def _objects_of(path: str) -> list[JsonObject]:
    found = read_documents(path)
    for each in found:
        if not isinstance(each.get("metadata"), dict):
            raise CommandError(f"{path}: metadata: expected an object")
        if not isinstance(each.get("spec"), dict):
            raise CommandError(f"{path}: spec: expected an object")
    return [as_created(each) if each.get("kind") == "Pod" else each for each in found]


def _try(verb: AdmitVerb, obj: JsonObject, known: Surroundings, settings: Settings, index: ClusterIndex) -> Tested:
    admission = verb.admit(review_of(obj, _namespace_of(obj)))
    response = admission.review["response"]
    after = apply_patch(obj, read_patch(response), JSON) if response["allowed"] else None
    before_pod, pod = _pod(obj, settings), None if after is None else _pod(after, settings)
    held = None if pod is None else held_at_scheduling(pod, index, known.nodes, settings)
    return Tested(obj, after, admission, _match(before_pod, known.nodes), _match(pod, known.nodes), held)


def _pod(obj: JsonObject, settings: Settings) -> Pod | None:
    """The pod as the index reads it; None for another object. Raises CommandError."""
    if obj.get("kind") != "Pod":
        return None
    try:
        pod: Pod = pods_within(settings.limits).decode_object(orjson.dumps(obj))
    except WireError as error:
        raise CommandError(f"pod {obj['metadata'].get('name')}: {error}") from None
    return pod


def _match(pod: Pod | None, nodes: Sequence[Node] | None) -> NodeMatch | None:
    """The nodes that a pod fits; None for other objects, and where the nodes are not known."""
    return None if nodes is None or pod is None else match_nodes(pod, nodes)


def _namespace_of(obj: JsonObject) -> str:
    return str(obj["metadata"].get("namespace") or "")


# ---- the cluster


def _surroundings(arguments: argparse.Namespace, settings: Settings) -> Surroundings:
    wanted = "" if arguments.pod else arguments.namespace
    if arguments.snapshot:
        return _of_list(arguments.snapshot, read_bytes(arguments.snapshot), wanted, settings)
    if not arguments.kubeconfig:
        return Surroundings()
    try:
        body = run_on_loop(_read_cluster(Kube(kubeconfig=arguments.kubeconfig), wanted))
    except KubeError as error:
        raise CommandError(f"{arguments.kubeconfig}: {error}") from None
    return _of_list(arguments.kubeconfig, body, wanted, settings)


async def _read_cluster(kube: Kube, namespace: str) -> bytes:
    """The nodes and namespaces of a cluster, and the pods of one of them, in the form of a snapshot."""
    paths = {"Node": "/api/v1/nodes", "Namespace": "/api/v1/namespaces"}
    paths |= {"Pod": f"/api/v1/namespaces/{namespace}/pods"} if namespace else {}
    items: list[Mapping[str, Any]] = []
    async with open_session(access_to(kube), SystemClock()) as session:
        for kind, path in paths.items():
            found = await read_list(session.reads, path)
            items += ({**orjson.loads(each), "apiVersion": "v1", "kind": kind} for each in found)
    return orjson.dumps({"kind": "List", "items": items})


def _of_list(source: str, body: bytes, namespace: str, settings: Settings) -> Surroundings:
    try:
        snapshot = decode_snapshot(body, settings.limits)
    except WireError as error:
        raise CommandError(f"{source}: {error}") from None
    for problem in snapshot.unreadable:
        print(f"{source}: skipped: {problem}", file=sys.stderr)
    found = Surroundings(nodes=[each for each in snapshot.objects if isinstance(each, Node)])
    found.namespaces = {each.name: each.labels for each in snapshot.objects if isinstance(each, Namespace)}
    if namespace:
        try:
            listed = orjson.loads(body)
        except ValueError as error:  # numbers and texts that orjson does not read, and the decoder skips
            raise CommandError(f"{source}: {error}") from None
        found.pods = [as_created(each) for each in _pods_of(listed, namespace)]
    return found


def _pods_of(listed: JsonObject, namespace: str) -> Iterator[JsonObject]:
    """The pods of a namespace that are not finished, as they stand in a list. Those without a spec are left out."""
    default = str(listed["kind"]).removesuffix("List")
    for each in listed.get("items") or ():
        if not isinstance(each, dict) or each.get("kind", default) != "Pod":
            continue
        metadata, spec, status = each.get("metadata"), each.get("spec"), each.get("status")
        if not isinstance(metadata, dict) or not isinstance(spec, dict) or metadata.get("namespace") != namespace:
            continue
        if not isinstance(status, dict) or status.get("phase") not in _FINISHED:
            yield {"apiVersion": "v1", "kind": "Pod", **each}
