"""Where `explain` and `whatif` get their answers, the running service or a snapshot, and the forms in which they print them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable
from random import Random
from typing import Final, TypeVar

import msgspec
import yaml

from extender.cli.files import read_settings, read_snapshot
from extender.cli.service_client import Trust, add_trust
from extender.compose.service import Service, service_of_objects
from extender.settings.configuration import Settings

T = TypeVar("T")

_URL: Final = "http://127.0.0.1:8888"
_WIDEST: Final = 1000  # columns of YAML: no text is folded


def add_source(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments for the running service or a snapshot, and for the form of the answer."""
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--url", default=_URL, help=f"URL of the running service ({_URL})")
    source.add_argument("--snapshot", metavar="FILE", help="kubectl get nodes,namespaces,pods -A -o json")
    parser.add_argument("--config", metavar="FILE", help="with --snapshot: configuration (default: all defaults)")
    add_trust(parser)
    parser.add_argument("-o", "--output", choices=["table", "json", "yaml"], default="table")


def trust_of(arguments: argparse.Namespace) -> Trust:
    """The certificates for the running service."""
    return Trust(arguments.ca_file, arguments.cert_file, arguments.key_file)


def service_of_snapshot(arguments: argparse.Namespace) -> Service:
    """A service in this process with the objects of the snapshot; what cannot be read is told on standard error."""
    settings = read_settings(arguments.config) if arguments.config else Settings()
    snapshot = read_snapshot(arguments.snapshot, settings.limits)
    for problem in snapshot.unreadable:
        print(f"{arguments.snapshot}: skipped: {problem}", file=sys.stderr)
    return service_of_objects(settings, snapshot.objects, Random(0))


def print_answer(found: T, form: str, report: Callable[[T], Iterable[str]]) -> None:
    """Prints an answer of the API: ``report`` has the lines of the form "table"."""
    if form == "table":
        print("\n".join(report(found)))
    elif form == "json":
        print(msgspec.json.format(msgspec.json.encode(found)).decode())
    else:
        print(yaml.safe_dump(msgspec.to_builtins(found), sort_keys=False, width=_WIDEST), end="")
