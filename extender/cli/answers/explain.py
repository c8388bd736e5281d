"""`extender explain`: why a pod is pending, and which changes would let it pass.

Asks a running service, or computes the same from a snapshot. Changes nothing. Exit codes: 0 explained, 1 not explained, 2
wrong usage.
"""

import argparse
from typing import Final

import msgspec
import orjson

from extender.cli.answers.explain_report import report
from extender.cli.answers.sources import add_source, print_answer, service_of_snapshot, trust_of
from extender.cli.command import CommandError, Commands
from extender.cli.files import read_documents
from extender.cli.service_client import ServiceError, fetch_explanation
from extender.compose.process import run_on_loop
from extender.model.answers.explanations import Explanation, NotExplained
from extender.wire.errors import WireError
from extender.wire.manifests import decode_manifest

_PARTS: Final = 2


def add_parser(commands: Commands) -> None:
    """Adds the parser."""
    parser = commands.add_parser("explain", help="show why a pod is pending, and what would help")
    parser.add_argument("pod", metavar="NAMESPACE/POD", nargs="?", default="", help="a pod that exists")
    parser.add_argument(
        "-f", "--filename", metavar="FILE", help='a pod that does not exist yet, "-" for standard input'
    )
    parser.add_argument("--node", metavar="NODE", default="", help="show every obstacle on this node, too")
    add_source(parser)
    parser.set_defaults(run=run, wrong_usage=parser.error)


def run(arguments: argparse.Namespace) -> int:
    """Prints the explanation. Wrong usage ends the process with 2."""
    namespace, _, name = arguments.pod.partition("/")
    if bool(arguments.pod) == bool(arguments.filename):
        arguments.wrong_usage("which pod: either NAMESPACE/POD or --filename FILE")
    if arguments.pod and (not namespace or not name or "/" in name):
        arguments.wrong_usage(f'expected NAMESPACE/POD, got "{arguments.pod}"')
    body = _manifest(arguments.filename) if arguments.filename else b""
    if arguments.snapshot:
        found = _from_snapshot(arguments, namespace, name, body)
    else:
        trust = trust_of(arguments)
        try:
            answer = fetch_explanation(arguments.url, trust, (namespace, name), body, arguments.node)
            found = msgspec.json.decode(answer, type=Explanation)
        except ServiceError as error:
            raise CommandError(str(error), error.remedy) from None
        except msgspec.MsgspecError as error:
            raise CommandError(f"{arguments.url} has an unexpected answer: {error}") from None
    print_answer(found, arguments.output, report)
    return 0


def _manifest(path: str) -> bytes:
    documents = read_documents(path)
    if len(documents) != 1:
        raise CommandError(f"{path}: expected one pod, got {len(documents)} objects")
    return orjson.dumps(documents[0])


def _from_snapshot(arguments: argparse.Namespace, namespace: str, name: str, body: bytes) -> Explanation:
    """The explanation by the code of the service."""
    service = service_of_snapshot(arguments)

    async def explained() -> Explanation:
        explainer = service.verbs.explainer
        assert explainer is not None  # noqa: S101 (for the type checker: every service has one)
        if body:
            return await explainer.explain_given(decode_manifest(body, service.settings.limits), arguments.node)
        return await explainer.explain(namespace, name, arguments.node)

    try:
        return run_on_loop(explained())
    except (NotExplained, WireError) as error:
        raise CommandError(f"{arguments.filename or arguments.snapshot}: {error}") from None
