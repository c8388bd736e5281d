"""`extender replay`: a recorded run replays without any difference, other settings show theirs, bad files are named."""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from extender.cli import replay
from extender.cli.main import main
from extender.cli.simulate import read_scenario, scenario_settings
from extender.settings.configuration import settings_document
from extender.wire.recordings.redaction import Redactor
from tests.cli.recorded_runs import (
    arrivals_of_gangs,
    readme_block,
    record,
    replayed,
    texts_of,
    with_shortlists,
    without_counts,
)


@pytest.mark.parametrize(
    "name", ["mixed", "preemption", "policies", "pending", "quota", "burst-decisive", "faults", "schedulers"]
)
async def test_a_redacted_run_replays_without_a_difference_and_has_no_name(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "recording.jsonl"
    names = set[str]()
    await record(f"config/scenarios/{name}.yaml", file, names=names, redact=True)
    code, found = replayed(capsys, file)
    assert (code, found["differences"]) == (0, [])
    assert found["questions"]
    body = file.read_bytes()
    written = {text for line in body.splitlines() for text in texts_of(orjson.loads(line))}
    assert names.isdisjoint(written)
    assert [each for each in names if len(each) > 5 and each.encode() in body] == []


@pytest.mark.parametrize("placement", ["decisive", "cooperative"])
async def test_a_run_with_groups_that_exchange_their_room_replays_without_a_difference(
    placement: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "recording.jsonl"
    await record(arrivals_of_gangs(tmp_path, placement), file)
    code, found = replayed(capsys, file)
    assert (code, found["differences"]) == (0, [])
    assert found["questions"]


async def test_a_run_replays_as_it_is_written_and_a_file_that_is_rotated_begins_with_the_state(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With every verb, so answers are lists; the redacted runs above play the other scenarios."""
    file, before = tmp_path / "recording.jsonl", tmp_path / "recording.jsonl.1"

    def has_request_after_rotation() -> bool:
        return before.exists() and b'"type":"question"' in file.read_bytes()

    scenario = with_shortlists(tmp_path, "preemption")
    requested = await record(scenario, file, until=has_request_after_rotation, max_bytes=1_500_000)
    found = [replayed(capsys, each) for each in (before, file)]
    assert [(code, document["differences"]) for code, document in found] == [(0, []), (0, [])]
    verbs = Counter[str]()
    for each, (_, document) in zip((before, file), found, strict=True):
        lines = map(orjson.loads, each.read_bytes().splitlines())
        counts = Counter(line["verb"] for line in lines if line["type"] == "question")
        assert document["questions"] == counts.total() > 0
        verbs += counts
    assert 0 < verbs["filter"] <= requested
    assert verbs["prioritize"]
    assert verbs["preempt"]
    assert sum(document["changes"] for _, document in found) > verbs["filter"]
    first = orjson.loads(file.read_bytes().splitlines()[0])
    assert (first["type"], first["settings"]["recorder"]["maxBytes"]) == ("start", 1_500_000)


async def test_other_settings_show_who_would_have_been_placed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, other = tmp_path / "recording.jsonl.gz", tmp_path / "other.yaml"
    play = read_scenario("config/scenarios/pending.yaml")
    await record("config/scenarios/pending.yaml", file)
    document = settings_document(scenario_settings(play, "test"))
    document["rules"]["topologySpread"]["enabled"] = False
    document["limits"]["topologyKeys"] = 20
    other.write_bytes(orjson.dumps(document))
    code, found = replayed(capsys, file, "--config", other)
    passed = {each["pod"] for each in found["differences"] if (each["verb"], each["outcome"]) == ("filter", "passed")}
    assert code == 1
    assert passed == {"shop/uneven-ledger", "shop/too-few-zones", "shop/no-racks"}
    assert found["settings"] == {
        "limits.topologyKeys": {"recorded": 16, "replayed": 20},
        "rules.topologySpread.enabled": {"recorded": True, "replayed": False},
    }
    assert main(["replay", str(file), "--config", str(other)]) == 1
    shown = readme_block("config/how-to/record-and-replay.md", "POD                 VERB")
    assert without_counts(capsys.readouterr().out) == without_counts(shown)


async def test_other_weights_change_which_of_the_nodes_that_pass_is_preferred_and_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Readers need web pods in their zone, so a weight of 0 takes from web pods what draws them to readers, and only from them."""
    file, other = tmp_path / "recording.jsonl", tmp_path / "other.yaml"
    scenario = "config/scenarios/mixed.yaml"
    await record(scenario, file)

    def with_weights(score_scale: str = "extender", **affinity: Any) -> tuple[list[Any], Any]:
        document = settings_document(scenario_settings(read_scenario(scenario), "test"))
        document["rules"]["interPodAffinity"] |= affinity
        document["answers"]["scoreScale"] = score_scale
        other.write_bytes(orjson.dumps(document))
        code, found = replayed(capsys, file, "--config", other)
        assert code == bool(found["differences"])
        return found["differences"], found["settings"]

    for affinity in ({"hardPodAffinityWeight": 0}, {"ignorePreferredTermsOfExistingPods": True}):
        differences, changed = with_weights(**affinity)
        assert differences
        assert {(each["outcome"], *each["why"]) for each in differences} == {("elsewhere",)}
        assert {each["pod"].partition("/")[2].partition("-")[0] for each in differences} == {"web"}
        assert list(changed) == [f"rules.interPodAffinity.{name}" for name in affinity]
    # The only term with a weight, and a scale of scores where the extender chooses by them itself: neither changes the order.
    assert with_weights(hardPodAffinityWeight=100)[0] == []
    assert with_weights("inTree") == ([], {"answers.scoreScale": {"recorded": "extender", "replayed": "inTree"}})


async def test_a_file_that_ends_within_a_record_is_replayed_up_to_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "recording.jsonl"
    await record("config/scenarios/pending.yaml", file)
    body = file.read_bytes()
    for cut in (body[:-9], gzip.compress(body)[:-30]):
        file.write_bytes(cut)
        assert main(["replay", str(file)]) == 0
        assert "cut off" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "holds no recording"),
        (b"nonsense\n", "line 1: "),
        (b'{"type":"claim","kind":"NominationEnd","claim":{"uid":"a"}}\n', 'expected "start" first'),
        (b'{"type":"start","settings":{},"format":99}\n', "expected 1, got 99"),
        (b'{"type":"start","settings":{"mode":"guess"}}\n', "apiVersion"),
        (gzip.compress(b"{}\n", mtime=0)[:12] + b"\0" * 40, "CRC"),
    ],
    ids=["empty", "no JSON", "no start", "unknown format", "wrong settings", "damaged gzip"],
)
def test_a_file_that_cannot_be_read_is_named_with_the_problem(
    body: bytes, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "bad"
    file.write_bytes(body)
    assert main(["replay", str(file)]) == 3
    error = capsys.readouterr().err
    assert error.startswith(f"extender: {file}: ")
    assert said in error
    assert main(["replay", str(tmp_path / "absent")]) == 3
    assert "No such file" in capsys.readouterr().err


@pytest.mark.parametrize("end", [b"", b"\n"], ids=["without its end", "with its end"])
@pytest.mark.parametrize("compress", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_a_line_that_no_recorder_writes_is_not_read_whole(
    compress: Callable[[bytes], bytes],
    end: bytes,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(replay, "MOST_LINE_BYTES", 2**20)
    file = tmp_path / "long"
    file.write_bytes(compress(b'{"type":"start","settings":{"a":"' + b"a" * 2**20 + end))
    assert main(["replay", str(file)]) == 3
    assert capsys.readouterr().err == f"extender: {file}: line 1: is longer than 1 MiB, as no record is\n"


async def test_names_in_another_configuration_are_replaced_under_the_key_of_the_recording(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, other, key = tmp_path / "recording.jsonl", tmp_path / "other.yaml", tmp_path / "key"
    key.write_bytes(b"only for this test\n")
    await record("config/scenarios/pending.yaml", file, key=key.read_bytes().strip(), redact=True)
    play = read_scenario("config/scenarios/pending.yaml")
    document = settings_document(scenario_settings(play, "test"))
    document["policies"]["exemptNamespaces"] = ["shop"]
    other.write_bytes(orjson.dumps(document))
    code, found = replayed(capsys, file, "--config", other, "--redact-key-file", key)
    redactor = Redactor(key.read_bytes().strip())
    changed = {each["pod"] for each in found["differences"]}
    assert code == 1
    assert redactor.text("shop/missed-policy") in changed
    without_key = replayed(capsys, file, "--config", other)
    assert without_key == (0, without_key[1] | {"differences": []})
    key.write_bytes(b"short")
    assert main(["replay", str(file), "--config", str(other), "--redact-key-file", str(key)]) == 3
    assert "a key of at least 16 bytes is needed, this one has 5" in capsys.readouterr().err
