"""The `extender` command: its parser and its exit codes. Each subcommand but `version` is a module.

Imports only the subcommand that is called: without the Kubernetes client `config validate` takes a third of the time.

Exit codes: 0 success, 1 an error or a failed check, 2 wrong usage, 130 interrupted. In `doctor` 2 means errors found.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version
from typing import Final

from extender.cli.command import CommandError, Run

COMMANDS: Final = {  # and their modules in this package
    "serve": "serve",
    "demo": "simulation.demo",
    "simulate": "simulation.simulate",
    "certs": "certs",
    "config": "config",
    "policy": "policies.policy",
    "quota": "policies.quota",
    "groups": "policies.groups",
    "doctor": "doctor",
    "explain": "answers.explain",
    "whatif": "answers.whatif",
    "replay": "replay",
}
INTERRUPTED = 130
OUTPUT_CLOSED = 141  # as a shell reports SIGPIPE


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line and returns the exit code. `argv` None means the arguments of the process."""
    given = sys.argv[1:] if argv is None else argv
    arguments = make_parser(given[0] if given else "").parse_args(given)
    run: Run = arguments.run
    try:
        code = run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:  # the output goes to a program that has read enough, such as head
        # Otherwise the interpreter writes what is left at its end, and reports the same error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OUTPUT_CLOSED
    except CommandError as error:
        for line in error.lines:
            print(f"extender: {line}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
    return code


def make_parser(chosen: str) -> argparse.ArgumentParser:
    """The parser of one subcommand; of all of them, for help, if `chosen` is none."""
    parser = argparse.ArgumentParser(
        prog="extender", description="A kube-scheduler extender for pod affinity and topology spread."
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name in [chosen] if chosen in COMMANDS else () if chosen == "version" else COMMANDS:
        import_module(f"extender.cli.{COMMANDS[name]}").add_parser(commands)
    commands.add_parser("version", help="print the version").set_defaults(run=print_version)
    return parser


def print_version(_: argparse.Namespace) -> int:
    """Prints the version of the installed distribution."""
    print(f"extender {version('placement-extender')}")
    return 0
