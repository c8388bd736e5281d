"""`extender version`."""

import argparse

from extender.cli.command import Commands
from extender.compose.process import installed_version


def add_parser(commands: Commands) -> None:
    """Adds the parser, which takes no arguments."""
    commands.add_parser("version", help="print the version").set_defaults(run=run)


def run(_: argparse.Namespace) -> int:
    """Prints the version."""
    print(f"extender {installed_version()}")
    return 0
