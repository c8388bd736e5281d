"""Where subcommands get objects: from a snapshot, or from a cluster in the form of a snapshot; and how they print answers."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec
import orjson
import yaml

from extender.cli.files import access_to, read_listed, read_settings
from extender.cli.main import CommandError, say
from extender.cli.progress import progress
from extender.compose.process import run_on_loop
from extender.kube.errors import KubeError, NotFound, Rejected
from extender.kube.listing import read_list
from extender.kube.session import open_session
from extender.kube.timing import SystemClock
from extender.settings.configuration import Settings
from extender.settings.connections import Kube
from extender.settings.limits import ConstraintLimits
from extender.wire.errors import WireError
from extender.wire.snapshots import Snapshot, decode_snapshot

T = TypeVar("T")

_WIDEST: Final = 1000  # columns of YAML: no text is folded
_INDENT: Final = "  "


def add_config(parser: argparse.ArgumentParser) -> None:
    """Adds the argument for the settings."""
    parser.add_argument("--config", metavar="FILE", help="configuration of the extender (default: all defaults)")


def cluster_of(arguments: argparse.Namespace) -> Kube:
    """The cluster that the arguments name, or else kubectl's."""
    return Kube(kubeconfig=arguments.kubeconfig, context=arguments.context)


def settings_of(arguments: argparse.Namespace) -> Settings:
    """The settings of `--config`, else the defaults. Raises CommandError."""
    return read_settings(arguments.config) if arguments.config else Settings()


def read_cluster(kube: Kube, paths: Mapping[tuple[str, str], str], optional: Collection[str] = ()) -> bytes:
    """The objects at these paths, by apiVersion and kind, as a list. Raises CommandError.

    Objects of ``optional`` kinds that may not be read are left out, with a line on standard error.
    """

    async def read() -> bytes:
        items: list[Mapping[str, Any]] = []
        async with open_session(access_to(kube), SystemClock()) as session:
            for (version, kind), path in paths.items():
                try:
                    listed = await read_list(session.reads, path)
                except (Rejected, NotFound) as error:
                    if kind not in optional:
                        raise
                    say(f"{kind}: left out: {error}", to=sys.stderr)
                    continue
                # The API server leaves apiVersion and kind out of the items of a list, and the decoder of snapshots
                # needs them.
                items += ({**orjson.loads(item), "apiVersion": version, "kind": kind} for item in listed)
        return orjson.dumps({"kind": "List", "items": items})

    try:
        with progress("reads the cluster"):
            return run_on_loop(read())
    except KubeError as error:
        raise CommandError(f"{kube.kubeconfig or 'the cluster'}: {error}") from None


def decoded(source: str, body: bytes, limits: ConstraintLimits) -> Snapshot:
    """The objects of a list. Objects that cannot be read are named on standard error. Raises CommandError."""
    try:
        snapshot = decode_snapshot(body, limits)
    except WireError as error:
        raise CommandError(f"{source}: {error}") from None
    for problem in snapshot.unreadable:
        say(f"{source}: skipped: {problem}", to=sys.stderr)
    if not snapshot.objects:
        kinds = ", ".join(f"{count} {kind}" for kind, count in snapshot.skipped.items())
        say(f"{source}: no object that decisions read{f': {kinds} skipped' if kinds else ''}", to=sys.stderr)
    for note in snapshot.notes:
        say(f"{source}: {note}", to=sys.stderr)
    return snapshot


def snapshot_of(path: str, limits: ConstraintLimits) -> Snapshot:
    """The objects of a file with the output of kubectl, as `decoded`."""
    with progress(f"reads {path}"):
        return decoded(path, read_listed(path), limits)


def print_json(value: object) -> None:
    """Prints a value of JSON, indented."""
    say(*orjson.dumps(value, option=orjson.OPT_INDENT_2).decode().split("\n"))


def print_yaml(*documents: object) -> None:
    """Prints values as YAML documents."""
    if documents:
        text = yaml.safe_dump_all(documents, sort_keys=False, width=_WIDEST)
        say(*text.removesuffix("\n").split("\n"))


def add_output(parser: argparse.ArgumentParser) -> None:
    """Adds the argument for the form of an answer, the same for all commands."""
    forms, text = ["table", "wide", "json", "yaml"], "wide: more columns or rows; json and yaml: for scripts"
    parser.add_argument("-o", "--output", choices=forms, default="table", help=text)


def print_document(value: object, form: str) -> None:
    """Prints a value of JSON as "json" or "yaml"."""
    (print_json if form == "json" else print_yaml)(value)


def print_answer(answer: T, form: str, report: Callable[[T, bool], Iterable[str]]) -> None:
    """Prints an answer of the API. ``report`` makes the lines of a table; its flag is set for the form "wide"."""
    if form in {"table", "wide"}:
        say(*report(answer, form == "wide"))
    else:
        print_document(with_defaults(answer), form)


def with_defaults(value: object) -> object:
    """A value of the API with each field, also with the fields that the API omits because they have their default.

    So a script finds each field in each answer.
    """
    if isinstance(value, msgspec.Struct):
        fields = msgspec.structs.fields(value)
        return {field.encode_name: with_defaults(getattr(value, field.name)) for field in fields}
    if isinstance(value, Mapping):
        return {str(msgspec.to_builtins(key)): with_defaults(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [with_defaults(element) for element in value]
    return msgspec.to_builtins(value)


def table(rows: Sequence[Sequence[str]], gap: str = "  ", indent: str = _INDENT) -> Iterator[str]:
    """Columns as wide as their longest cell, the last one ragged."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        # Trailing blanks would wrap the line in a narrow terminal.
        yield indent + gap.join(map(str.ljust, row, widths)).rstrip()
