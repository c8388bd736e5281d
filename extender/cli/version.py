"""`extender version`, and the version for everybody else."""

import argparse
from importlib.metadata import version

from extender.cli.command import Commands

DISTRIBUTION = "placement-extender"


def installed_version() -> str:
    """The version of the installed distribution."""
    return version(DISTRIBUTION)


def add_parser(commands: Commands) -> None:
    """It takes no arguments."""
    commands.add_parser("version", help="print the version").set_defaults(run=run)


def run(_: argparse.Namespace) -> int:
    """One line."""
    print(f"extender {installed_version()}")
    return 0
