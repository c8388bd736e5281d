"""`extender config validate FILE...`: prints for each file that it is valid, or all its problems.

`generate.py` has the other action.
"""

import argparse
import sys
from collections.abc import Sequence

from extender.cli import generate
from extender.cli.command import CommandError, Commands
from extender.cli.files import read_settings


def add_parser(commands: Commands) -> None:
    """Adds the parsers of both actions."""
    config = commands.add_parser("config", help="work with configuration files")
    actions = config.add_subparsers(title="actions", metavar="ACTION", required=True)
    validate = actions.add_parser("validate", help="check configuration files")
    validate.add_argument("files", metavar="FILE", nargs="+", help='a configuration file, "-" for standard input')
    validate.set_defaults(run=run)
    generate.add_action(actions)


def run(arguments: argparse.Namespace) -> int:
    """Returns 0 if every file is valid, else 1."""
    files: Sequence[str] = arguments.files
    return max([_validate(file) for file in files])


def _validate(file: str) -> int:
    """Prints a valid file to standard output, problems to standard error."""
    try:
        settings = read_settings(file)
    except CommandError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{file}: valid ({settings.kind}, mode {settings.mode})")
    return 0
