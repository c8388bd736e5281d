"""The interface between `main` and a subcommand: a module that adds its parser and the function to run."""

import argparse
from collections.abc import Callable
from typing import TypeAlias

# A subcommand adds its parser to it. argparse has no public name for the type.
Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"  # noqa: SLF001 (no public name)

# The function of a subcommand: takes the parsed arguments, returns the exit code.
Run = Callable[[argparse.Namespace], int]


class CommandError(Exception):
    """Raised when a command cannot continue. Each line is printed; the exit code is 1."""

    def __init__(self, *lines: str) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines
