"""What a subcommand is: a module that adds its parser and has a function to run. Read by `main`, knows none of them."""

import argparse
from collections.abc import Callable
from typing import TypeAlias

# Where a subcommand adds its parser; argparse has no public name for it.
Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"  # noqa: SLF001 (as said)

# A subcommand's function takes the parsed arguments and gives the exit code.
Run = Callable[[argparse.Namespace], int]


class CommandError(Exception):
    """Raised when a command cannot do what it was asked; each line is shown to the user. The exit code is 1."""

    def __init__(self, *lines: str) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines
