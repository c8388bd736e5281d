"""The parser of the commands: an example in each help, and what completion has to know about the words of a command."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, Self

_FILES: Final = frozenset({"DIR", "FILE", "FOLDER", "POLICY", "SCENARIO"})  # metavars of paths


class Parser(argparse.ArgumentParser):
    """The parser of a command. Parsers of its subcommands are of this class too."""

    def __init__(self, *, examples: Sequence[str] = (), **given: Any) -> None:
        """``examples``: arguments that the help shows behind the name of the command."""
        shown = [f"  %(prog)s {line}".rstrip() for line in examples]
        given.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(epilog="\n".join((f"example{'s' * (len(shown) > 1)}:", *shown)) if shown else None, **given)
        self.examples = examples

    def inner(self) -> Mapping[str, Self]:
        """The subcommands, by name."""
        return next((action.choices for action in self._actions if isinstance(action.choices, dict)), {})

    def arguments(self) -> Sequence[argparse.Action]:
        """The options and the positional arguments."""
        return self._actions

    def awaited(self, words: Sequence[str], given: argparse.Namespace) -> Awaited:
        """What follows these words. They are read as argparse reads them, but they are incomplete.

        ``given`` gets the values of the options.
        """
        option: argparse.Action | None = None
        for number, word in enumerate(words, 1):
            if option is not None:
                setattr(given, option.dest, word)
                option = None
            elif word.startswith("-"):
                known = self._option_string_actions.get(word)
                option = None if known is None or known.nargs == 0 else known
            elif word in self.inner():
                return self.inner()[word].awaited(words[number:], given)
        if option is not None:
            return Awaited((), option)
        positional = next((action for action in self._actions if not action.option_strings), None)
        return Awaited(sorted(self._option_string_actions), positional)


class Awaited(NamedTuple):
    """The options that may follow, and the argument whose value may follow; None if no value may."""

    options: Sequence[str]
    argument: argparse.Action | None


def is_path(argument: argparse.Action) -> bool:
    """Whether the value is the path of a file or a folder."""
    return argument.choices is None and argument.metavar in _FILES


def add_cluster(parser: argparse.ArgumentParser, source: argparse._ActionsContainer, what: str) -> None:
    """Adds the arguments for `cluster_of`. ``source``: the parser, or its group with the alternatives to a cluster."""
    source.add_argument("--kubeconfig", metavar="FILE", default="", help=what)
    parser.add_argument("--context", metavar="NAME", default="", help="context of the kubeconfig (the current one)")
