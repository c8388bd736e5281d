"""`extender whatif`: where pods would go if the cluster were changed.

Asks a running service, or computes the same from a snapshot. Changes nothing. Exit codes: 0 answered, 1 not answered, 2 wrong
usage.
"""

import argparse
from collections.abc import Iterator, Sequence
from typing import Any, Final

import orjson

from extender.cli.explain import add_source, ask_service, service_of_snapshot
from extender.cli.files import read_documents
from extender.cli.main import CommandError, Commands
from extender.cli.progress import progress
from extender.cli.sources import print_answer, table
from extender.features.execution.cli import plan_lines
from extender.model.answers.what_if import Displaced, Placement, WhatIfAnswer
from extender.model.bounded import at_once
from extender.tasks.what_if.computing import answer_body
from extender.wire.errors import WireError
from extender.wire.manifests import is_in_namespace
from extender.wire.objects.kinds import WATCHED_KINDS
from extender.wire.pods.workloads import GROUPS

_KINDS: Final = {
    **{
        name: watched.api_kind
        for watched in WATCHED_KINDS
        for name in (watched.api_kind.lower(), watched.kind.resource)
    },
    **{name: kind for kind in GROUPS for name in (kind.lower(), f"{kind.lower()}s")},
}  # in the singular or the plural, as for kubectl
_OF_NODES: Final = {"node", "nodes"}
_PARTS: Final = (2, 3)  # of KIND/NAME and KIND/NAMESPACE/NAME


def add_parser(commands: Commands) -> None:
    """Adds the parser."""
    parser = commands.add_parser(
        "whatif",
        help="show where pods would go if the cluster were changed",
        examples=["--drain node-1", "-f deployment.yaml --delete pod/shop/web-1", "-f new-zone.yaml --moves"],
    )
    parser.add_argument(
        "-f", "--filename", metavar="FILE", help='the changes, or objects to add or replace; "-" for standard input'
    )
    parser.add_argument(
        "--delete",
        metavar="KIND/[NAMESPACE/]NAME",
        action="append",
        default=[],
        help="an object to delete, such as node/worker-3; may be given several times",
    )
    for verb, text in (("drain", "cordon and evict the pods of, as kubectl drain"), ("cordon", "cordon")):
        parser.add_argument(
            f"--{verb}",
            metavar="NODE",
            action="append",
            default=[],
            help=f"a node to {text}; may be given several times",
        )
    parser.add_argument(
        "--displaced",
        choices=[choice.value for choice in Displaced],
        help="what becomes of the pods of deleted and drained nodes (default: place)",
    )
    parser.add_argument(
        "--no-pending",
        action="store_true",
        help="do not place pending pods, only given pods and pods of deleted and drained nodes",
    )
    parser.add_argument(
        "--moves",
        action="store_true",
        help="show the moves that would follow, of running pods that a policy watches (when: [Execution]); no pod is evicted",
    )
    parser.add_argument("-n", "--namespace", metavar="NS", default="", help="of objects that name none (default)")
    add_source(parser)
    parser.set_defaults(run=run, wrong_usage=parser.error)


def run(arguments: argparse.Namespace) -> int:
    """Prints the answer. Wrong usage ends the process with 2."""
    changes = _changes(arguments.filename, arguments.namespace) if arguments.filename else {}
    removals = [_removal(text, arguments) for text in arguments.delete]
    if removals:
        changes["delete"] = [*(changes.get("delete") or ()), *removals]
    for verb in ("cordon", "drain"):
        if nodes := [_node(text, verb, arguments) for text in getattr(arguments, verb)]:
            changes[verb] = [*(changes.get(verb) or ()), *nodes]
    if arguments.displaced:
        changes["displaced"] = arguments.displaced
    if arguments.no_pending:
        changes["place"] = {"pending": False}
    if arguments.moves:
        changes["moves"] = True
    body = orjson.dumps(changes)
    if arguments.snapshot:
        answer = _from_snapshot(arguments, body)
    else:
        remedy = "correct the changes, or ask for less at a time"
        answer = ask_service(arguments, "/v1/whatif", body, remedy, WhatIfAnswer)
    print_answer(answer, arguments.output, report)
    return 0


def _changes(path: str, namespace: str) -> dict[str, Any]:
    """The changes in a file: one document without a kind, or objects that are to be added or replaced."""
    documents = read_documents(path)
    # A Kubernetes object has a kind. A document of changes has fields such as `apply` and `delete`.
    changes = documents[0] if len(documents) == 1 and "kind" not in documents[0] else {"apply": documents}
    applied = changes.get("apply")
    for obj in applied if isinstance(applied, list) and namespace else ():
        if isinstance(obj, dict) and isinstance(obj.get("metadata"), dict) and is_in_namespace(str(obj.get("kind"))):
            obj["metadata"].setdefault("namespace", namespace)
    return changes


def _removal(text: str, arguments: argparse.Namespace) -> dict[str, str]:
    # Examples: node/worker-3, deployment/web -n team-a, pod/team-a/web-0.
    kind, *names = text.split("/")
    if len(names) + 1 not in _PARTS or not all(names) or kind.lower() not in _KINDS:
        arguments.wrong_usage(f'--delete: expected KIND/NAME or KIND/NAMESPACE/NAME, got "{text}"')
    kind = _KINDS[kind.lower()]
    space = names[0] if len(names) + 1 == max(_PARTS) else arguments.namespace if is_in_namespace(kind) else ""
    return {"kind": kind, **({"namespace": space} if space else {}), "name": names[-1]}


def _node(text: str, verb: str, arguments: argparse.Namespace) -> str:
    """The name of a node, which may follow its kind as for kubectl."""
    kind, _, name = text.rpartition("/")
    if not name or (kind and kind.lower() not in _OF_NODES):
        arguments.wrong_usage(f'--{verb}: expected NODE or node/NODE, got "{text}"')
    return name


def _from_snapshot(arguments: argparse.Namespace, body: bytes) -> WhatIfAnswer:
    """The answer by the code of the service, in this process. It may change the index, which nothing else uses."""
    # Without a file of settings the policies of the snapshot act, because moves are about policies.
    service = service_of_snapshot(arguments, with_policies=arguments.moves)
    # The service runs these steps between requests. Here nothing else runs, so they are run without a pause.
    try:
        with progress("computes where pods would go"):
            return at_once(answer_body(body, service.index, service.settings))
    except WireError as error:
        raise CommandError(f"{_place(error.path, arguments)}{error}") from None


def _place(path: str, arguments: argparse.Namespace) -> str:
    """The file or the argument with the wrong field."""
    verb = path.partition("[")[0]
    if verb in ("delete", "drain", "cordon") and getattr(arguments, verb):
        return f"--{verb}: "
    return f"{arguments.filename}: " if arguments.filename else ""


def report(answer: WhatIfAnswer, is_wide: bool = False) -> Iterator[str]:  # noqa: FBT001, FBT002 (for print_answer)
    """The lines of the table."""
    summary = answer.summary
    parts = [f"{summary.placed} placed", f"{summary.rejected} rejected"]
    for count, text in (
        (summary.displaced, "displaced from their nodes"),
        (summary.gone, "gone for good"),
        (summary.gated, "gated"),
        (summary.not_tried, "not tried"),
    ):
        parts += [f"{count} {text}"] if count else []
    yield ", ".join(parts)
    if answer.placements:
        yield ""
        yield from table(_rows(answer.placements, is_wide=is_wide))
    if answer.notes:
        yield ""
        yield from (f"note: {note}" for note in answer.notes)
    if answer.moves is not None:
        yield from ("", "Moves that would follow:", *plan_lines(answer.moves, is_wide))


def _rows(placements: Sequence[Placement], *, is_wide: bool) -> list[tuple[str, ...]]:
    """``is_wide``: with the pods that cause a rejection, and with the unchecked needs of every pod."""
    more = ("BECAUSE OF", "NOT CHECKED") if is_wide else ()
    rows: list[tuple[str, ...]] = [("POD", "WHY ASKED", "WAS ON", "GOES TO", *more, "REASON")]
    for placement in placements:
        node = placement.node or placement.state
        note = f"not checked: {placement.unchecked}" if placement.unchecked and placement.node and not is_wide else ""
        blamed = ", ".join(dict.fromkeys(name for obstacle in placement.obstacles for name in obstacle.blamed))
        cells = (blamed or "-", placement.unchecked or "-") if is_wide else ()
        rows.append((placement.pod, placement.origin, placement.was or "-", node, *cells, placement.reason or note))
    return rows
