"""`extender explain`: why a pod is pending, and which changes would let it pass.

Asks a running service, or computes the same from a snapshot. Changes nothing. Exit codes: 0 explained, 1 not explained, 2
wrong usage.
"""

import argparse
from collections.abc import Iterator, Sequence
from random import Random
from typing import Final, TypeVar
from urllib.parse import quote

import msgspec
import orjson
from msgspec.structs import replace

from extender.cli.files import read_documents
from extender.cli.main import CommandError, Commands
from extender.cli.progress import progress
from extender.cli.service_client import ServiceError, add_trust, fetch, trust_of
from extender.cli.sources import add_output, print_answer, settings_of, snapshot_of, table
from extender.compose.process import run_on_loop
from extender.compose.service import Service, service_of_objects
from extender.model.answers.explanations import (
    ConstraintState,
    Explanation,
    HeldGroup,
    NodeState,
    NotExplained,
    Obstacle,
    TermReach,
    TriedChange,
    shown_domain,
)
from extender.model.units import agreeing, counted, listed
from extender.wire.errors import WireError
from extender.wire.manifests import decode_manifest

T = TypeVar("T")

_INDENT: Final = "  "
_URL: Final = "http://127.0.0.1:8888"


def add_parser(commands: Commands) -> None:
    """Adds the parser."""
    parser = commands.add_parser(
        "explain",
        help="show why a pod is pending, and what would help",
        examples=["shop/web-1", "-f pod.yaml --node node-1"],
    )
    parser.add_argument("pod", metavar="[NAMESPACE/]POD", nargs="?", default="", help="a pod that exists")
    parser.add_argument("-n", "--namespace", metavar="NS", default="", help="namespace of the pod")
    parser.add_argument(
        "-f", "--filename", metavar="FILE", help='a pod that does not exist yet, "-" for standard input'
    )
    parser.add_argument("--node", metavar="NODE", default="", help="show every obstacle on this node, too")
    add_source(parser)
    parser.set_defaults(run=run, wrong_usage=parser.error)


def run(arguments: argparse.Namespace) -> int:
    """Prints the explanation. Wrong usage ends the process with 2."""
    namespace, _, name = arguments.pod.rpartition("/")
    namespace = namespace or arguments.namespace
    if bool(arguments.pod) == bool(arguments.filename):
        arguments.wrong_usage("which pod: either NAMESPACE/POD, POD -n NAMESPACE, or --filename FILE")
    if arguments.pod and (not namespace or not name or "/" in namespace):
        arguments.wrong_usage(f'expected NAMESPACE/POD or POD -n NAMESPACE, got "{arguments.pod}"')
    body = _manifest(arguments.filename) if arguments.filename else b""
    if arguments.snapshot:
        explanation = _from_snapshot(arguments, namespace, name, body)
    else:
        # `safe=""`: a slash in a name must not become a part of the path.
        path = "" if body else f"/{quote(namespace, safe='')}/{quote(name, safe='')}"
        query = f"?node={quote(arguments.node, safe='')}" if arguments.node else ""
        remedy = "check the names of the pod and the node, and `extender doctor`"
        explanation = ask_service(arguments, f"/v1/explain{path}{query}", body, remedy, Explanation)
    print_answer(explanation, arguments.output, report)
    return 0


def add_source(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments for the running service or a snapshot, and for the form of the answer. `whatif` has them too."""
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--url", default="", help=f"URL of the running service ({_URL})")
    source.add_argument("--snapshot", metavar="FILE", help="kubectl get nodes,namespaces,pods -A -o json")
    parser.add_argument("--config", metavar="FILE", help="with --snapshot: configuration (default: all defaults)")
    add_trust(parser)
    add_output(parser)


def ask_service(arguments: argparse.Namespace, path: str, body: bytes, remedy: str, answer: type[T]) -> T:
    """The answer of the running service at this path. Raises CommandError. ``remedy``: for an error that it answers."""
    url = arguments.url or _URL
    try:
        return msgspec.json.decode(fetch(url, trust_of(arguments), path, body, remedy), type=answer)
    except ServiceError as error:
        raise CommandError(str(error), error.remedy) from error
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise CommandError(f"{url} has an unexpected answer: {error}") from None


def service_of_snapshot(arguments: argparse.Namespace, *, with_policies: bool = False) -> Service:
    """A service in this process with the objects of the snapshot. ``with_policies``: policies act whatever the settings say."""
    settings = settings_of(arguments)
    if with_policies:
        settings = replace(settings, policies=replace(settings.policies, enabled=True))
    # A fixed seed: equal snapshots have equal answers, also where equal nodes are chosen at random.
    return service_of_objects(settings, snapshot_of(arguments.snapshot, settings.limits).objects, Random(0))


def _manifest(path: str) -> bytes:
    documents = read_documents(path)
    if len(documents) != 1:
        raise CommandError(f"{path}: expected one pod, got {len(documents)} objects")
    return orjson.dumps(documents[0])


def _from_snapshot(arguments: argparse.Namespace, namespace: str, name: str, body: bytes) -> Explanation:
    service = service_of_snapshot(arguments)

    async def explained() -> Explanation:
        explainer = service.verbs.explainer
        assert explainer is not None  # noqa: S101 (for the type checker: every service has one)
        if body:
            return await explainer.explain_given(decode_manifest(body, service.settings.limits), arguments.node)
        return await explainer.explain(namespace, name, arguments.node)

    try:
        with progress("computes the explanation"):
            return run_on_loop(explained())
    except (NotExplained, WireError) as error:
        raise CommandError(f"{arguments.filename or arguments.snapshot}: {error}") from None


def report(explanation: Explanation, is_wide: bool = False) -> Iterator[str]:  # noqa: FBT001, FBT002 (for print_answer)
    """The lines of an explanation."""
    yield f"{explanation.pod}: {explanation.state}"
    yield from (f"broken: {text}" for text in explanation.broken)
    if explanation.move:
        yield f"{'move' if explanation.broken else 'watched'}: {explanation.move}"
    if not explanation.nodes:
        yield "there is no node"
    elif explanation.obstacles or explanation.passing:  # a pod that is placed has neither
        if explanation.asked is not None:
            yield explanation.asked.text
        yield _verdict(explanation)
        yield from _notes_on_all(explanation)
        if explanation.obstacles:
            yield from ("", "What rejects it", *table(_obstacle_rows(explanation.obstacles, is_wide=is_wide)))
        for state in explanation.constraints:
            yield from ("", *_constraint(state))
        if explanation.node is not None:
            yield from ("", *_node(explanation.node))
        # A pod that some node would take needs no change of the cluster.
        if not explanation.fitting:
            yield from ("", "What would help (each was tried)", *_changes(explanation))


def _notes_on_all(explanation: Explanation) -> Iterator[str]:
    if explanation.group is not None:
        yield from _held(explanation.group)
    elif explanation.gates:
        yield f"held at scheduling gates: {', '.join(explanation.gates)}"
    if explanation.candidates:
        yield f"such as {', '.join(explanation.candidates)}"
    if explanation.unchecked:
        yield f"not checked: {explanation.unchecked}"
    if explanation.preempting:
        yield f"pods are preempted for it on {explanation.preempting}; it waits until they are gone"
    if explanation.policies:
        yield f"held by scheduling policies: {', '.join(explanation.policies)}"
    if explanation.rejection:
        yield f"the scheduler says: {explanation.rejection}"
    if (
        explanation.rejection
        and explanation.fitting
        and not explanation.gates
        and not (explanation.asked and explanation.asked.last)
    ):
        yield "it has not been tried since the cluster changed, or another plugin of kube-scheduler rejects it"
    if explanation.is_changed:
        yield "the cluster changed meanwhile, so parts may not agree"


def _held(group: HeldGroup) -> Iterator[str]:
    yield f"held at the gate of {group.policy} with its group {group.group}, which is {group.state}: {group.text or group.reason}"
    if group.domain:
        yield f"it goes to {group.domain}, and nodes elsewhere do not count"


def _node(state: NodeState) -> Iterator[str]:
    yield f"On {state.name} it {'passes' if state.passes and state.fits else 'is rejected'}"
    yield from (f"{_INDENT}{line}" for obstacle in state.obstacles for line in _on_node(obstacle))


def _changes(explanation: Explanation) -> Iterator[str]:
    yield from (
        f"{_INDENT}- {change.text}: then it passes on {change.node}{_violated(change)}"
        for change in explanation.changes
    )
    if not explanation.changes:
        yield f"{_INDENT}none of the changes that were tried"


def _violated(change: TriedChange) -> str:
    if not change.pdb_violations:
        return ""
    return f", but it violates disruption budgets for {change.pdb_violations} of the pods"


def _verdict(explanation: Explanation) -> str:
    if explanation.fitting and explanation.gates:
        return f"{explanation.fitting} of {explanation.nodes} nodes would take it without its {'gates' if explanation.gates[1:] else 'gate'}"
    if explanation.fitting:
        return f"{explanation.fitting} of {explanation.nodes} nodes would take it now"
    return f"{explanation.passing} of {explanation.nodes} nodes pass the rules of the extender, and none would take it"


def _obstacle_rows(obstacles: Sequence[Obstacle], *, is_wide: bool) -> list[tuple[str, ...]]:
    """``is_wide``: with the topology key and the code of the reason, by which metrics and decisions name it."""
    more = ("CODE", "TOPOLOGY KEY") if is_wide else ()
    rows: list[tuple[str, ...]] = [("RULE", "NODES", "REASON", *more, "BECAUSE OF", "SUCH AS")]
    return rows + [
        (
            obstacle.rule,
            str(obstacle.nodes),
            obstacle.text,
            *((obstacle.reason, obstacle.topology_key or "-") if is_wide else ()),
            ", ".join(obstacle.blamed) or _where(obstacle),
            listed(obstacle.examples, count=obstacle.nodes),
        )
        for obstacle in obstacles
    ]


def _where(obstacle: Obstacle) -> str:
    return f"topology key {obstacle.topology_key}" if obstacle.topology_key else "-"


def _on_node(obstacle: Obstacle) -> Iterator[str]:
    yield f"{obstacle.rule}: {obstacle.text}"
    parts = (
        [f"{obstacle.topology_key} {'missing' if obstacle.domain is None else shown_domain(obstacle.domain)}"]
        if obstacle.topology_key
        else []
    )
    if obstacle.limit is not None:
        parts.append(f"{obstacle.count} counted, {obstacle.limit} would pass")
    if obstacle.blamed:
        parts.append(f"because of {', '.join(obstacle.blamed)}")
    if parts:
        yield f"{_INDENT}{'; '.join(parts)}"


def _constraint(state: ConstraintState) -> Iterator[str]:
    head = f"{_HEADS.get(state.kind, state.kind)} by {state.topology_key}"
    yield f"{head}; pods: {state.pods}; {_reach(state.reach)}"
    for note in _notes(state):
        yield f"{_INDENT}{note}"
    rows: list[tuple[str, ...]] = [("DOMAIN", "NODES", "PODS", "PASSES", "COUNTED")]
    rows += [
        (
            shown_domain(domain.domain),
            str(domain.nodes),
            str(domain.count),
            "yes" if domain.passes else "no",
            listed(domain.pods, count=domain.count),
        )
        for domain in state.domains
    ]
    yield from table(rows)
    if state.more_domains:
        yield f"{_INDENT}and {state.more_domains} more domains"
    if state.more_terms:
        yield f"and {state.more_terms} more terms of existing pods"


# A kind that is not in the table, such as the kind of a rule of your own, is its own heading.
_HEADS: Final = {
    "podAffinity": "Required pod affinity",
    "podAntiAffinity": "Required pod anti-affinity",
    "existingPodAntiAffinity": "Required anti-affinity of existing pods",
    "topologySpread": "Hard topology spread",
}


def _notes(state: ConstraintState) -> Iterator[str]:
    if state.kind == "topologySpread":
        yield (
            f"maxSkew {state.max_skew}: a domain may have at most {state.limit} now, as the minimum over "
            f"{state.eligible} eligible domains is {state.minimum}"
        )
        if state.min_domains > state.eligible:
            # As in podtopologyspread: with fewer domains than minDomains the global minimum is treated as 0.
            yield f"minDomains {state.min_domains}: more than the eligible domains, so the minimum counts as 0"
        yield from (f"without {excluded.domain}: {excluded.why}" for excluded in state.left_out)
    # Allowed in Kubernetes, and mostly a mistake in the labels: skew is then about other pods only.
    if state.excludes_itself:
        yield "its selector does not select the pod itself, so placing the pod changes no count"
    # As in interpodaffinity: otherwise the first pod of a group with affinity to itself could never be placed.
    if state.is_first_pod:
        yield "no pod matches yet and this one matches itself: every domain passes"
    if state.carrier:
        yield f"carried by {state.carrier}, for example"
    if state.lacking:
        verdict = "which reject it" if state.rejects_lacking else "which pass"
        yield f"{counted(state.lacking, 'node')} {agreeing(state.lacking, 'lacks', 'lack')} the label, {verdict}"


def _reach(reach: TermReach) -> str:
    if reach.is_every:
        return f"namespaces: all ({reach.why})"
    names = listed(reach.namespaces, count=reach.count) or "none"
    return f"namespaces: {names} ({reach.why})"
