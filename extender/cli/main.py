"""The `extender` command: its parser and its exit codes. Each subcommand but `version` is a module.

A module adds its parser and the function to run. Only the module of the called subcommand is imported: without the Kubernetes
client `config validate` takes a third of the time.

Exit codes: 0 success, 1 an error or a failed check, 2 wrong usage, 130 interrupted. `doctor` has 3 for warnings and 4 for errors that it
found, and `replay` 3 for a recording that cannot be read.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Collection, Sequence
from importlib import import_module
from importlib.metadata import version
from typing import Final, TextIO, TypeAlias

from extender.cli.parser import Parser
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
    "moves": "extender.features.execution.cli",
    "doctor": "extender.cli.doctor",
    "support-bundle": "extender.cli.support_bundle",
    "explain": "extender.cli.explain",
    "whatif": "extender.cli.whatif",
    "ui": "extender.cli.ui",
    "replay": "extender.cli.replay",
    "completion": "extender.cli.completion",
}
# They print the version, so they need no other command.
_VERSIONS: Final = ("version", "--version")
INTERRUPTED = 130
COMPLETE: Final = "__complete"  # what the scripts of `completion` call; no command of its own in the help
OUTPUT_CLOSED = 141  # as a shell reports SIGPIPE


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line and returns the exit code. `argv` None means the arguments of the process."""
    given = sys.argv[1:] if argv is None else argv
    if given[:1] == [COMPLETE]:
        complete = import_module(COMMANDS["completion"]).complete
        return int(complete(make_parser, [*COMMANDS, "version"], given[1:]))
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


def make_parser(chosen: str) -> Parser:
    """The parser of one subcommand; of all of them, for help, if `chosen` is none."""
    parser = Parser(
        prog="extender",
        description="A kube-scheduler extender for pod affinity and topology spread.",
        examples=["serve --config config/extender.yaml", "explain shop/web-1", "doctor"],
    )
    add_commands(parser, chosen, COMMANDS)
    return parser


def add_commands(parser: Parser, chosen: str, names: Collection[str]) -> Commands:
    """Adds to a parser one of the named subcommands, all of them if `chosen` is none, and `version`."""
    parser.add_argument("--version", action=PrintVersion)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name in [chosen] if chosen in names else () if chosen in _VERSIONS else names:
        import_module(COMMANDS[name]).add_parser(commands)
    commands.add_parser("version", help="print the version", examples=[""]).set_defaults(run=print_version)
    return commands


def print_version(_: argparse.Namespace) -> int:
    """Prints the version of the installed distribution."""
    say(f"extender {version('placement-extender')}")
    return 0


class PrintVersion(argparse.Action):
    """The option --version. The version is read only when it is printed."""

    def __init__(self, option_strings: Sequence[str], dest: str) -> None:
        super().__init__(option_strings, dest, nargs=0, help="print the version")

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        """Ends the program with the exit code 0."""
        parser.exit(print_version(argparse.Namespace()))


def say(*lines: object, to: TextIO | None = None) -> None:
    """Prints lines, each as one line whatever it contains: what is not printable is escaped as in JSON.

    Tenants write names, labels and messages, which could otherwise clear the terminal or forge lines.
    """
    print(*(printable(str(line)) for line in lines), sep="\n", file=to, flush=True)


# A subcommand adds its parser to it. argparse has no public name for the type.
Commands: TypeAlias = "argparse._SubParsersAction[Parser]"  # noqa: SLF001 (no public name)

# The function of a subcommand: takes the parsed arguments, returns the exit code.
Run = Callable[[argparse.Namespace], int]


class CommandError(Exception):
    """Raised when a command cannot continue. Each line is printed; the exit code is 1."""

    def __init__(self, *lines: str) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines
