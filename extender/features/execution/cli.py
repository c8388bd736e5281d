"""`extender moves`: broken constraints of running pods, and the moves that mend them.

Asks a running service. With `--plan` it computes all moves that would follow one another, from a snapshot or a cluster, and
changes nothing. `pause` and `resume` write an annotation of a policy. Exit codes: 0 done, 1 not done, 2 wrong usage.
"""

import argparse
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from msgspec.structs import replace

from extender.cli.explain import ask_service
from extender.cli.files import access_to, read_documents, read_listed
from extender.cli.main import CommandError, Commands, say
from extender.cli.parser import add_cluster
from extender.cli.progress import progress
from extender.cli.service_client import add_trust
from extender.cli.sources import (
    add_config,
    add_output,
    cluster_of,
    decoded,
    print_answer,
    read_cluster,
    settings_of,
    table,
)
from extender.compose.foundation import make_index
from extender.compose.process import run_on_loop
from extender.features.execution.answers import NO_POLICY, MovesAnswer
from extender.features.execution.directive import PAUSED_ANNOTATION
from extender.features.execution.plan import answer_of, plan_moves
from extender.features.execution.schema import Movable, pod_facts
from extender.index.cluster import ClusterIndex
from extender.kube.errors import KubeError
from extender.kube.session import MERGE_PATCH, open_session
from extender.kube.timing import SystemClock
from extender.model.answers.pages import MOST_ROWS
from extender.model.bounded import at_once
from extender.model.constraints.labels import is_dns_subdomain
from extender.model.policies import CLUSTER_KIND, GROUP, NAMESPACED_KIND, PolicyObject
from extender.model.units import counted, rfc3339
from extender.settings.configuration import Settings
from extender.wire.objects.constraints import DEFAULT_LIMITS
from extender.wire.objects.kinds import policies_within, watched_kinds
from extender.wire.policies.policies_v1 import PolicyError, read_policy
from extender.wire.policies.policy_validation import POLICY_KINDS
from extender.wire.snapshots import objects_of

_NEEDED: Final = frozenset({"Namespace", "Node", "Pod"})
_KUBECTL: Final = "kubectl get nodes,namespaces,pods,podpol,cpodpol,pdb -A -o json"
_LIMIT: Final = 10.0


def add_parser(commands: Commands) -> None:
    """Adds the parser."""
    parser = commands.add_parser(
        "moves",
        help="show broken constraints of running pods, and the moves that mend them",
        examples=["", "--plan --snapshot cluster.json -f policy.yaml", "pause spread"],
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=False)
    for name, text in (("pause", "begin no moves of a policy"), ("resume", "begin moves of a policy again")):
        action = actions.add_parser(name, help=text, examples=["spread", "spread -n shop"])
        action.add_argument("policy", metavar="NAME", help="the name of the policy")
        action.add_argument(
            "-n", "--namespace", dest="of", metavar="NS", default="", help="its namespace (default: cluster-wide)"
        )
        add_cluster(action, action, "access to the cluster (as kubectl)")
        action.set_defaults(run=run_pause, pauses=name == "pause", url="unused")  # it asks the API server only
    parser.add_argument(
        "--plan", action="store_true", help="show all moves that would follow one another until no move is left"
    )
    parser.add_argument(
        "-f",
        "--filename",
        metavar="POLICY",
        action="append",
        default=[],
        help="with --plan: a file with policies to add or replace; may be given several times",
    )
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--url", default="", help="URL of the running service (http://127.0.0.1:8888)")
    source.add_argument("--snapshot", metavar="FILE", help=f"with --plan: {_KUBECTL}")
    add_cluster(parser, source, "with --plan: read the objects of this cluster (as kubectl)")
    add_trust(parser)
    add_config(parser)
    add_output(parser)
    parser.set_defaults(run=run, wrong_usage=parser.error)


def run(arguments: argparse.Namespace) -> int:
    """Prints the moves. Wrong usage ends the process with 2."""
    if not arguments.plan:
        if arguments.snapshot or arguments.filename:
            arguments.wrong_usage("--snapshot and --filename need --plan")
        remedy = "check that policies are enabled, and `extender doctor`"
        answer = ask_service(arguments, f"/v1/moves?limit={MOST_ROWS}", b"", remedy, MovesAnswer)
        print_answer(answer, arguments.output, _live_lines)
        return 0
    settings = settings_of(arguments)
    # Without a file of settings the policies of the snapshot act, as the command is about them.
    settings = replace(settings, policies=replace(settings.policies, enabled=True))
    source, body = _objects(arguments, settings)
    index, now = make_index(settings), datetime.now(UTC)
    for obj in decoded(source, body, settings.limits).objects:
        index.upsert(obj)
    for path in arguments.filename:
        _add_policies(path, index, settings)
    # Exclusions of domains are judged once, as no clock runs here.
    index.domains.step(now.timestamp())
    pods = (obj for obj in objects_of(body) if obj.get("kind") == "Pod")
    facts = {str(pod["metadata"].get("uid")): pod_facts(pod) for pod in pods if pod.get("metadata")}
    with progress("plans moves"):
        plan = at_once(plan_moves(index, settings, Movable(facts, now)))
    watches = any(policy.execution is not None for policy in index.policies)
    print_answer(answer_of(plan, () if watches else (NO_POLICY,)), arguments.output, plan_lines)
    return 0


def run_pause(arguments: argparse.Namespace) -> int:
    """Writes the annotation of a policy, or removes it. Returns 0."""
    kind = NAMESPACED_KIND if arguments.of else CLUSTER_KIND
    path = policies_within(DEFAULT_LIMITS, kind, GROUP).path
    for what, name in (("NAME", arguments.policy), ("--namespace", arguments.of)):
        if name and not is_dns_subdomain(name):
            raise CommandError(f"{what}: {name!r} is no name of an object")
    if arguments.of:
        group, resource = path.rsplit("/", 1)
        path = f"{group}/namespaces/{arguments.of}/{resource}"
    value = rfc3339(datetime.now(UTC)) if arguments.pauses else None
    body = {"metadata": {"annotations": {PAUSED_ANNOTATION: value}}}

    async def write() -> None:
        async with open_session(access_to(cluster_of(arguments)), SystemClock()) as session:
            path_of_policy = f"{path}/{arguments.policy}"
            await session.writes.call("PATCH", path_of_policy, body=body, content_type=MERGE_PATCH, limit=_LIMIT)

    try:
        run_on_loop(write())
    except KubeError as error:
        raise CommandError(f"{kind} {arguments.policy}: {error}") from None
    say(f"{kind} {arguments.policy}: moves {'are paused' if arguments.pauses else 'may begin'}")
    return 0


def _objects(arguments: argparse.Namespace, settings: Settings) -> tuple[str, bytes]:
    if arguments.snapshot:
        return arguments.snapshot, read_listed(arguments.snapshot)
    paths = {(_version_of(each.kind.path), each.api_kind): each.kind.path for each in watched_kinds(settings)}
    optional = {kind for _, kind in paths} - _NEEDED
    return arguments.kubeconfig or "the cluster", read_cluster(cluster_of(arguments), paths, optional)


def _version_of(path: str) -> str:
    """The apiVersion of the kind at a path: `/apis/apps/v1/replicasets` has `apps/v1`."""
    return path.removeprefix("/apis/").removeprefix("/api/").rpartition("/")[0]


def _add_policies(path: str, index: ClusterIndex, settings: Settings) -> None:
    for document in read_documents(path):
        group = str(document.get("apiVersion")).rpartition("/")[0]
        if (group, str(document.get("kind"))) not in POLICY_KINDS:
            raise CommandError(f"{path}: kind: expected a policy, got {document.get('kind')}")
        try:
            index.upsert(PolicyObject(read_policy(document, settings.limits)))
        except PolicyError as error:
            raise CommandError(f"{path}: {error}") from None


def _live_lines(answer: MovesAnswer, is_wide: bool) -> Iterator[str]:  # noqa: FBT001 (for print_answer)
    """What the leader does and plans: the moves, and then what no move mends."""
    rows: list[tuple[str, ...]] = []
    for row in (*answer.moves, *answer.stuck):
        namespace, _, pod = row.pod.partition("/")
        cells = (namespace, pod, row.constraint, row.since or "-", row.source, row.target or "-", row.state)
        rows.append(
            (*cells, *((row.policy, row.broken) if is_wide else ()), row.why or ("" if is_wide else row.broken))
        )
    if rows:
        more = ("POLICY", "BROKEN") if is_wide else ()
        headings = ("NAMESPACE", "POD", "CONSTRAINT", "SINCE", "FROM", "TO", "STATE", *more, "WHY")
        yield from table([headings, *rows], indent="")
    elif not answer.notes:
        yield "no watched constraint is broken"
    yield from (f"note: {note}" for note in answer.notes)


def plan_lines(answer: MovesAnswer, is_wide: bool) -> Iterator[str]:  # noqa: FBT001 (for print_answer)
    """A plan as lines: the moves in order, and what no move mends."""
    policy = ("POLICY",) if is_wide else ()
    if answer.moves:
        rows = [
            (f"{at}", row.pod, row.source, row.target, row.constraint, *([row.policy] if is_wide else []), row.broken)
            for at, row in enumerate(answer.moves, start=1)
        ]
        yield from table([("", "POD", "FROM", "TO", "CONSTRAINT", *policy, "BROKEN"), *rows], indent="")
        yield ""
    if answer.stuck:
        yield "Broken, without a move that is allowed:"
        rows = [
            (row.pod, row.source, row.constraint, *([row.policy] if is_wide else []), row.broken, row.why)
            for row in answer.stuck
        ]
        yield from table([("POD", "ON", "CONSTRAINT", *policy, "BROKEN", "WHY"), *rows], indent="")
        yield ""
    yield from (f"note: {note}" for note in answer.notes)
    if not answer.before:
        yield "no watched constraint is broken"
        return
    moves = counted(len(answer.moves), "move") if answer.moves else "no move"
    yield f"{moves}: what is broken falls from {answer.before} to {answer.after}"
