"""`extender completion` in real shells, and the help of every command."""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest

from extender.cli import kubectl
from extender.cli.main import COMMANDS, COMPLETE, main, make_parser
from extender.cli.parser import Parser
from tests.programs import tool

BASH = 'COMP_WORDS=(COMMAND {words}); COMP_CWORD={last}; FUNCTION; echo "${{COMPREPLY[@]}}"'
ZSH = 'compadd() {{ echo "${{@[2,-1]}}" }}; _files() {{ echo files }}; words=(COMMAND {words}); CURRENT={last}+1; FUNCTION'
FISH = 'complete --do-complete "COMMAND {line}" | string join " "'
PROGRAMS = {"extender": main, "kubectl-placement": kubectl.main}


def completed(*words: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    assert main([COMPLETE, *words]) == 0
    return capsys.readouterr().out.splitlines()


def test_words_are_completed_from_the_parser(capsys: pytest.CaptureFixture[str]) -> None:
    assert completed("", capsys=capsys) == [*COMMANDS, "version", ":4"]
    assert completed("do", capsys=capsys) == ["domain", "doctor", ":4"]
    assert completed("--", capsys=capsys) == ["--help", "--version", ":4"]
    assert completed("config", "generate", "--mode", "", capsys=capsys) == ["offload", "augment", ":4"]
    assert completed("completion", "", capsys=capsys) == ["bash", "fish", "zsh", ":4"]
    for path in (["serve", "--config"], ["certs", "--out"], ["simulate"], ["policy", "test"], ["replay"]):
        assert completed(*path, "", capsys=capsys) == [":0"]
    for text in (["simulate", "--seed"], ["domain", "exclude", "--reason"], ["explain", "--url"]):
        assert completed(*text, "", capsys=capsys) == [":4"]


def test_the_first_word_is_completed_without_the_parsers_of_all_commands() -> None:
    script = f"import sys\nfrom extender.cli.main import main\nmain(['{COMPLETE}', 'd'])\nprint(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert {"argparse", "extender.cli.completion"} <= set(ran.stdout.splitlines()[-1].split())
    assert not {"extender.cli.serve", "aiohttp", "msgspec"} & set(ran.stdout.splitlines()[-1].split())


@pytest.mark.parametrize("command", PROGRAMS)
@pytest.mark.parametrize(("shell", "script"), [("bash", BASH), ("zsh", ZSH), ("fish", FISH)])
def test_the_script_of_a_shell_completes_the_command(
    shell: str, script: str, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    program = tool("bash") if shell == "bash" else tool("zsh") if shell == "zsh" else tool("fish")
    assert PROGRAMS[command](["completion", shell]) == 0
    prepared = "compdef() { }" if shell == "zsh" else ""
    asked = script.format(words='quota ""', last=2, line="quota ")
    asked = asked.replace("FUNCTION", f"_{command.replace('-', '_')}").replace("COMMAND", command)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    text = f"{prepared}\n{capsys.readouterr().out}\n{asked}"
    environment = {**os.environ, "PATH": path}
    done = subprocess.run([program, "-c", text], env=environment, capture_output=True, text=True, check=True)
    assert sorted(done.stdout.split()) == ["generate", "report"], done


def parsers(parser: Parser) -> Iterator[Parser]:
    yield parser
    for inner in parser.inner().values():
        yield from parsers(inner)


@pytest.mark.parametrize(
    "parser",
    [*parsers(make_parser("")), *parsers(kubectl.make_parser(""))],
    ids=lambda parser: parser.prog if isinstance(parser, Parser) else "",
)
def test_each_help_has_an_example_that_its_parser_reads(parser: Parser) -> None:
    program = "kubectl placement" if parser.prog.startswith("kubectl") else "extender"
    shown = parser.format_help().partition("\nexample")[2].splitlines()[1:]
    assert shown
    make = kubectl.make_parser if program != "extender" else make_parser
    for line in shown:
        assert line.startswith(f"  {parser.prog}")
        words = shlex.split(line.strip().removeprefix(program))
        assert isinstance(make(words[0]).parse_args(words), argparse.Namespace)


def test_every_answer_has_the_same_forms() -> None:
    outputs = {
        parser.prog: (argument.choices, argument.default)
        for parser in parsers(make_parser(""))
        for argument in parser.arguments()
        if argument.dest == "output"
    }
    assert len(outputs) == 10
    assert list(outputs.values()) == [(["table", "wide", "json", "yaml"], "table")] * len(outputs)


@pytest.mark.parametrize("run", PROGRAMS.values(), ids=PROGRAMS)
def test_the_option_version_prints_what_is_installed(run: object, capsys: pytest.CaptureFixture[str]) -> None:
    assert callable(run)
    with pytest.raises(SystemExit) as left:
        run(["--version"])
    assert (left.value.code, capsys.readouterr().out) == (0, f"extender {version('placement-extender')}\n")
