"""The `extender` command: its parser and its exit codes. Each subcommand is a module of its own.

Only the command that is asked for is imported: `config validate` needs no Kubernetes client, and starts in a third of
the time without it.

Exit codes: 0 all well, 1 the command could not do it or found something wrong, 2 wrong usage, 130 interrupted.
A command may give 2 a meaning of its own, as `doctor` does.
"""

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Final

from extender.cli.command import CommandError, Run
from extender.compose.errors import StartError

COMMANDS: Final = ("serve", "demo", "simulate", "bench", "certs", "config", "doctor", "version")
INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code is returned. `argv` None means the process's own arguments."""
    given = sys.argv[1:] if argv is None else argv
    arguments = make_parser(given[0] if given else "").parse_args(given)
    run: Run = arguments.run
    try:
        return run(arguments)
    except CommandError as error:
        for line in error.lines:
            print(f"extender: {line}", file=sys.stderr)
        return 1
    except StartError as error:
        print(f"extender: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED


def make_parser(chosen: str) -> argparse.ArgumentParser:
    """The parser of one subcommand; of all of them, for help, where it is none."""
    parser = argparse.ArgumentParser(
        prog="extender", description="A kube-scheduler extender for pod affinity and topology spread."
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name in [chosen] if chosen in COMMANDS else COMMANDS:
        import_module(f"extender.cli.{name}").add_parser(commands)
    return parser
