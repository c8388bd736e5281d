"""`extender config validate`."""

from pathlib import Path

import pytest

from extender.cli.main import main

GOOD = "apiVersion: placement.extender.dev/v1alpha1\nkind: ExtenderConfiguration\n"


def write(folder: Path, text: str, name: str = "extender.yaml") -> str:
    """A file with this text; gives its path."""
    path = folder / name
    path.write_text(text, "utf-8")
    return str(path)


def test_a_valid_file_is_called_valid_with_its_kind_and_mode(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, GOOD + "mode: augment\n")
    assert main(["config", "validate", path]) == 0
    assert capsys.readouterr().out == f"{path}: valid (ExtenderConfiguration, mode augment)\n"


def test_every_problem_is_a_line_with_the_file_and_the_fields_path(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, GOOD + "server:\n  maxBodyBytes: lots\n  port: 1\nlogging: {level: 5}\n")
    assert main(["config", "validate", path]) == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.splitlines() == [
        f'{path}: server.maxBodyBytes: expected a size such as "32Mi", "500k" or "4096", got "lots"',
        f"{path}: server.port: unknown field",
        f"{path}: logging.level: expected str, got int",
    ]


def test_of_several_files_one_bad_one_is_enough_for_exit_code_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad = write(tmp_path, GOOD, "good.yaml"), write(tmp_path, "kind: Pod\n", "bad.yaml")
    assert main(["config", "validate", bad, good]) == 1
    told = capsys.readouterr()
    assert told.out == f"{good}: valid (ExtenderConfiguration, mode offload)\n"
    assert f"{bad}: apiVersion: is missing" in told.err


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("mode: [offload\n", "line 2, column 1: expected ',' or ']', but got '<stream end>'"),
        (GOOD + "mode: offload\nmode: augment\n", 'line 4, column 1: "mode" is set twice'),
        ("", "expected a mapping, got NoneType"),
        ("--- 1\n--- 2\n", "line 2, column 1: but found another document"),
    ],
    ids=["broken", "a field twice", "empty", "two documents"],
)
def test_what_is_not_one_yaml_mapping_is_rejected_with_its_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, problem: str
) -> None:
    path = write(tmp_path, text)
    assert main(["config", "validate", path]) == 1
    assert capsys.readouterr().err == f"{path}: {problem}\n"
