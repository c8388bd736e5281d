"""`extender version`."""

import argparse

from extender.cli.command import Commands
from extender.compose.version import installed_version


def add_parser(commands: Commands) -> None:
    """It takes no arguments."""
    commands.add_parser("version", help="print the version").set_defaults(run=run)


def run(_: argparse.Namespace) -> int:
    """One line."""
    print(f"extender {installed_version()}")
    return 0
