"""`extender completion`: prints the completion of the command for a shell, and answers what its script asks.

The script passes the words before the cursor, and last the word at the cursor. The answer is a completion a line, then cobra's
directive, which kubectl reads too: `:4`, or `:0` where the shell completes the path of a file. The words come from the parser
itself, and names from the cluster.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from extender.cli.main import COMPLETE, Commands, run_command, say
from extender.cli.parser import Parser, is_path

_SECONDS: Final = 3.0  # that a completion waits for the API server
_NO_FILES: Final = 4  # cobra's directive ShellCompDirectiveNoFileComp
# By argument the objects whose names complete its value.
_NAMES: Final = {
    "namespace": "/api/v1/namespaces",
    "extender_namespace": "/api/v1/namespaces",
    **dict.fromkeys(("node", "drain", "cordon"), "/api/v1/nodes"),
    "pod": "/api/v1/namespaces/{namespace}/pods",
}


class Completed(NamedTuple):
    """A command, and the words that ask for its completions."""

    command: str
    asker: str


EXTENDER: Final = Completed("extender", f"extender {COMPLETE}")


def add_parser(commands: Commands, completed: Completed = EXTENDER) -> None:
    """Adds the parser."""
    parser = commands.add_parser(
        "completion", help=f"print the completion of {completed.command} for a shell", examples=sorted(_SCRIPTS)
    )
    parser.add_argument("shell", choices=sorted(_SCRIPTS), help="the script begins with the command that loads it")

    def print_script(arguments: argparse.Namespace) -> int:
        function = f"_{completed.command.replace('-', '_')}"
        script = _SCRIPTS[arguments.shell].strip().replace("FUNCTION", function)
        say(*script.replace("ASKER", completed.asker).replace("COMMAND", completed.command).split("\n"))
        return 0

    parser.set_defaults(run=print_script)


def complete(
    make_parser: Callable[[str], Parser], names: Iterable[str], argv: Sequence[str], program: str = "extender"
) -> int:
    """Prints what the last word may become. ``make_parser``: of one subcommand; ``names``: of all subcommands."""
    *words, begun = argv or [""]

    def run(_: argparse.Namespace) -> int:
        if words or begun.startswith("-"):
            completions = _completions(make_parser(words[0] if words else ""), words, begun)
        else:  # without a parser: the parsers of all commands take a second to import
            completions = [name for name in names if name.startswith(begun)]
        say(*(completions or ()), f":{0 if completions is None else _NO_FILES}")
        return 0

    return run_command(run, argparse.Namespace(), program)


def _completions(parser: Parser, words: Sequence[str], begun: str) -> list[str] | None:
    """The completions of ``begun`` after these words; None for a path, which the shell completes."""
    # `given`: the options before the cursor, which choose the cluster that names come from.
    given = argparse.Namespace(kubeconfig="", context="", namespace="")
    awaited = parser.awaited(words, given)
    if awaited.options and begun.startswith("-"):
        return [option for option in awaited.options if option.startswith(begun)]
    argument = awaited.argument
    if argument is None:
        return []
    if is_path(argument):
        return None
    if argument.choices is not None:
        values = list(map(str, argument.choices))
    elif argument.dest == "pod" and "/" in begun:
        given.namespace = begun.partition("/")[0]
        values = [f"{given.namespace}/{name}" for name in _names("pod", given)]
    else:
        values = _names(argument.dest, given)
    return [value for value in values if value.startswith(begun)]


def _names(argument: str, given: argparse.Namespace) -> list[str]:
    """The names that an argument may have. None if the cluster does not answer: a completion reports no errors."""
    if argument != "context" and argument not in _NAMES:
        return []
    # Imported here: the client takes half a second to import, and most words need no cluster.
    from extender.cli.object_names import contexts, names_at  # noqa: PLC0415 - see above

    return contexts(given) if argument == "context" else names_at(_NAMES[argument], given, _SECONDS)


# FUNCTION, COMMAND and ASKER are replaced.
_SCRIPTS: Final = {
    "bash": r"""
# bash completion of COMMAND. Load it with: source <(COMMAND completion bash)
FUNCTION() {
    local found line
    found="$(ASKER "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)" || return
    COMPREPLY=()
    while IFS= read -r line; do
        case "$line" in
            :0) compopt -o default ;;
            :*) ;;
            *) COMPREPLY+=("$line") ;;
        esac
    done <<<"$found"
}
complete -F FUNCTION COMMAND
""",
    "zsh": r"""
#compdef COMMAND
# zsh completion of COMMAND. Load it with: source <(COMMAND completion zsh)
FUNCTION() {
    local -a found
    found=("${(@f)$(ASKER "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    if [[ "${found[-1]}" == ":0" ]]; then
        _files
    else
        compadd -- "${(@)found[1,-2]}"
    fi
}
compdef FUNCTION COMMAND
""",
    "fish": r"""
# fish completion of COMMAND. Load it with: COMMAND completion fish | source
function FUNCTION
    set -l words (commandline -opc)
    set -l begun (commandline -ct)
    set -l found (ASKER $words[2..-1] "$begun" 2>/dev/null)
    if contains -- :0 $found
        __fish_complete_path "$begun"
    else
        string match -v -- ':*' $found
    end
end
complete -c COMMAND -f -a '(FUNCTION)'
""",
}
