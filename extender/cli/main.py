"""The `extender` command: its parser and its exit codes. Each subcommand but `version` is a module.

A module adds its parser and the function to run. Only the module of the called subcommand is imported: without the Kubernetes
client `config validate` takes a third of the time.

Exit codes: 0 success, 1 an error or a failed check, 2 wrong usage, 130 interrupted. In `doctor` 2 means errors found.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Collection, Sequence
from importlib import import_module
from importlib.metadata import version
from typing import Final, TextIO, TypeAlias

from extender.telemetry.logs import printable

COMMANDS: Final = {  # and their modules
    "serve": "extender.cli.serve",
    "demo": "extender.cli.demo",
    "simulate": "extender.cli.simulate",
    "certs": "extender.cli.certs",
    "config": "extender.cli.config",
    "policy": "extender.cli.policy",
    "quota": "extender.features.quotas.cli",
    "groups": "extender.cli.groups",
    "domain": "extender.cli.domain",
    "doctor": "extender.cli.doctor",
    "explain": "extender.cli.explain",
    "whatif": "extender.cli.whatif",
    "replay": "extender.cli.replay",
}
INTERRUPTED = 130
OUTPUT_CLOSED = 141  # as a shell reports SIGPIPE


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line and returns the exit code. `argv` None means the arguments of the process."""
    given = sys.argv[1:] if argv is None else argv
    arguments = make_parser(given[0] if given else "").parse_args(given)
    return run_command(arguments.run, arguments)


def run_command(run: Run, arguments: argparse.Namespace, name: str = "extender") -> int:
    """Runs a subcommand and returns the exit code. Errors begin with the name."""
    try:
        code = run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:  # the output goes to a program that has read enough, such as head
        # Otherwise the interpreter writes what is left at its end, and reports the same error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OUTPUT_CLOSED
    except CommandError as error:
        for line in error.lines:
            say(f"{name}: {line}", to=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
    return code


def make_parser(chosen: str) -> argparse.ArgumentParser:
    """The parser of one subcommand; of all of them, for help, if `chosen` is none."""
    parser = argparse.ArgumentParser(
        prog="extender", description="A kube-scheduler extender for pod affinity and topology spread."
    )
    add_commands(parser, chosen, COMMANDS)
    return parser


def add_commands(parser: argparse.ArgumentParser, chosen: str, names: Collection[str]) -> Commands:
    """Adds to a parser one of the named subcommands, all of them if `chosen` is none, and `version`."""
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name in [chosen] if chosen in names else () if chosen == "version" else names:
        import_module(COMMANDS[name]).add_parser(commands)
    commands.add_parser("version", help="print the version").set_defaults(run=print_version)
    return commands


def print_version(_: argparse.Namespace) -> int:
    """Prints the version of the installed distribution."""
    say(f"extender {version('placement-extender')}")
    return 0


def say(*lines: object, to: TextIO | None = None) -> None:
    """Prints lines, each as one line whatever it contains: what is not printable is escaped as in JSON.

    Tenants write names, labels and messages, which could otherwise clear the terminal or forge lines.
    """
    print(*(printable(str(line)) for line in lines), sep="\n", file=to, flush=True)


# A subcommand adds its parser to it. argparse has no public name for the type.
Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"  # noqa: SLF001 (no public name)

# The function of a subcommand: takes the parsed arguments, returns the exit code.
Run = Callable[[argparse.Namespace], int]


class CommandError(Exception):
    """Raised when a command cannot continue. Each line is printed; the exit code is 1."""

    def __init__(self, *lines: str) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines
