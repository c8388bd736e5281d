"""`extender explain`: why a pod is pending, and which changes would let it pass.

Asks a running service, or computes the same from a snapshot. Changes nothing. Exit codes: 0 explained, 1 not explained, 2
wrong usage.
"""

import argparse
import sys
from random import Random
from typing import Final

import msgspec
import orjson
import yaml

from extender.cli.command import CommandError, Commands
from extender.cli.explain_report import report
from extender.cli.files import read_documents, read_settings, read_snapshot
from extender.cli.service_client import ServiceError, Trust, add_trust, fetch_explanation
from extender.compose.process import run_on_loop
from extender.compose.service import service_of_objects
from extender.model.explanations import Explanation, NotExplained
from extender.settings.configuration import Settings
from extender.wire.errors import WireError
from extender.wire.kinds import decode_manifest

_URL: Final = "http://127.0.0.1:8888"
_PARTS: Final = 2


def add_parser(commands: Commands) -> None:
    """Adds the parser."""
    parser = commands.add_parser("explain", help="show why a pod is pending, and what would help")
    parser.add_argument("pod", metavar="NAMESPACE/POD", nargs="?", default="", help="a pod that exists")
    parser.add_argument(
        "-f", "--filename", metavar="FILE", help='a pod that does not exist yet, "-" for standard input'
    )
    parser.add_argument("--node", metavar="NODE", default="", help="show every obstacle on this node, too")
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--url", default=_URL, help=f"URL of the running service ({_URL})")
    source.add_argument("--snapshot", metavar="FILE", help="kubectl get nodes,namespaces,pods -A -o json")
    parser.add_argument("--config", metavar="FILE", help="with --snapshot: configuration (default: all defaults)")
    add_trust(parser)
    parser.add_argument("-o", "--output", choices=["table", "json", "yaml"], default="table")
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
        trust = Trust(arguments.ca_file, arguments.cert_file, arguments.key_file)
        try:
            answer = fetch_explanation(arguments.url, trust, (namespace, name), body, arguments.node)
            found = msgspec.json.decode(answer, type=Explanation)
        except ServiceError as error:
            raise CommandError(str(error), error.remedy) from None
        except msgspec.MsgspecError as error:
            raise CommandError(f"{arguments.url} has an unexpected answer: {error}") from None
    _print(found, arguments.output)
    return 0


def _manifest(path: str) -> bytes:
    documents = read_documents(path)
    if len(documents) != 1:
        raise CommandError(f"{path}: expected one pod, got {len(documents)} objects")
    return orjson.dumps(documents[0])


def _from_snapshot(arguments: argparse.Namespace, namespace: str, name: str, body: bytes) -> Explanation:
    """The explanation by the code of the service."""
    settings = read_settings(arguments.config) if arguments.config else Settings()
    snapshot = read_snapshot(arguments.snapshot, settings.limits)
    for problem in snapshot.unreadable:
        print(f"{arguments.snapshot}: skipped: {problem}", file=sys.stderr)

    async def explained() -> Explanation:
        explainer = service_of_objects(settings, snapshot.objects, Random(0)).verbs.explainer
        assert explainer is not None  # noqa: S101 (for the type checker: every service has one)
        if body:
            return await explainer.explain_given(decode_manifest(body, settings.limits), arguments.node)
        return await explainer.explain(namespace, name, arguments.node)

    try:
        return run_on_loop(explained())
    except (NotExplained, WireError) as error:
        raise CommandError(f"{arguments.filename or arguments.snapshot}: {error}") from None


def _print(found: Explanation, form: str) -> None:
    if form == "table":
        print("\n".join(report(found)))
    elif form == "json":
        print(msgspec.json.format(msgspec.json.encode(found)).decode())
    else:
        print(yaml.safe_dump(msgspec.to_builtins(found), sort_keys=False, width=1000), end="")
