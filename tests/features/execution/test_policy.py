"""A policy with `when: [Execution]`: what is read of it, and what `extender policy test` and the page show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from extender.features.execution.directive import (
    PAUSED_ANNOTATION,
    ExecutionMode,
    ExecutionSpec,
    VolumeChoice,
    WatchedConstraint,
)
from extender.wire.objects.kinds import WATCHED_KINDS
from extender.wire.policies.policies_v1 import read_policy
from tests.builders import Json
from tests.cli.policy_command import Command
from tests.policies import policy_json
from tests.verbs.admit.reviewing import pod


@pytest.fixture
def command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(tmp_path, capsys)


def execution_of(**spec: Any) -> ExecutionSpec | None:
    return read_policy(policy_json("watch", **spec)).execution


@pytest.mark.parametrize("execution", [None, {}])
def test_without_the_field_the_defaults_hold(execution: Json | None) -> None:
    found = execution_of(when=["Execution"], execution=execution)
    assert found == ExecutionSpec(
        ExecutionMode.REPORT,
        frozenset(WatchedConstraint),
        after=300,
        min_age=600,
        max_concurrent=10,
        max_per_minute=10,
        local_storage=VolumeChoice.MOVE,
        persistent_volumes=VolumeChoice.KEEP,
    )


def test_a_policy_with_other_moments_watches_nothing() -> None:
    assert execution_of(when=["Scheduling"], nodeSelector={"pool": "a"}) is None


def test_every_field_is_read() -> None:
    fields = {
        "mode": "Evict",
        "constraints": ["PodAffinity"],
        "after": "90s",
        "minAge": "0s",
        "maxConcurrent": 2,
        "maxPerMinute": 600,
        "localStorage": "Keep",
        "persistentVolumes": "Move",
    }
    found = execution_of(when=["Execution"], execution=fields)
    assert found == ExecutionSpec(
        ExecutionMode.EVICT,
        frozenset({WatchedConstraint.POD_AFFINITY}),
        after=90,
        min_age=0,
        max_concurrent=2,
        max_per_minute=600,
        local_storage=VolumeChoice.KEEP,
        persistent_volumes=VolumeChoice.MOVE,
    )


@pytest.mark.parametrize(
    ("annotations", "paused"), [({}, False), ({PAUSED_ANNOTATION: "by me"}, True), ({"a": "b"}, False)]
)
def test_an_annotation_pauses_the_moves(annotations: Json, *, paused: bool) -> None:
    found = policy_json("watch", when=["Execution"])
    found["metadata"]["annotations"] = annotations
    kind = next(each.kind for each in WATCHED_KINDS if each.api_kind == "ClusterPodSchedulingPolicy")
    watched = kind.decode_object(orjson.dumps(found))
    for policy in (read_policy(found), watched.policy):
        assert policy.execution is not None
        assert policy.execution.paused == paused


WATCHED: dict[str, tuple[Json, Json | None]] = {
    "by the default": (
        {"when": ["Execution"]},
        {"mode": "Report", "constraints": ["NodeAffinity", "PodAffinity", "PodAntiAffinity", "TopologySpread"]},
    ),
    "in mode Audit no pod is moved": (
        {"when": ["Execution"], "mode": "Audit", "execution": {"mode": "Evict", "constraints": ["NodeAffinity"]}},
        {"mode": "Report", "constraints": ["NodeAffinity"]},
    ),
    "other pods": ({"when": ["Execution"], "podSelector": {"matchLabels": {"app": "other"}}}, None),
    "at other moments": ({"nodeSelector": {"pool": "a"}}, None),
}


@pytest.mark.parametrize(("spec", "expected"), WATCHED.values(), ids=WATCHED)
def test_what_will_be_watched_of_a_pod(command: Command, spec: Json, expected: Json | None) -> None:
    found = command.on([policy_json("watch", **spec)])
    (tested,) = found.document["objects"]
    of_policy = {"policy": "ClusterPodSchedulingPolicy/watch"}
    assert tested["execution"] == (expected and of_policy | expected)


def test_the_table_says_what_will_be_watched(command: Command) -> None:
    execution = {"mode": "Evict", "constraints": ["TopologySpread", "NodeAffinity"]}
    given = command.write("policy.yaml", policy_json("watch", when=["Execution"], execution=execution))
    found = command(given, "--pod", command.write("pod.yaml", pod()))
    line = "watched while it runs: NodeAffinity, TopologySpread by ClusterPodSchedulingPolicy/watch (Evict)"
    assert line in map(str.strip, found.out.splitlines())
    assert not found.err  # such a policy directs something


def test_what_augment_cannot_watch_is_said(command: Command, tmp_path: Path) -> None:
    config = tmp_path / "extender.yaml"
    config.write_text(
        "{apiVersion: placement.extender.dev/v1alpha1, kind: ExtenderConfiguration, mode: augment}", "utf-8"
    )
    for more, count in (["--config", str(config)], 1), ([], 0):
        found = command.on([policy_json("watch", when=["Execution"])], *more)
        warnings = found.document["policies"][0]["warnings"]
        assert len([text for text in warnings if text.startswith("spec.execution: in mode augment only")]) == count
