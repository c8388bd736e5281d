"""What `doctor` finds where the profile scores nodes by something else than the extender, which answers one node."""

from __future__ import annotations

from typing import Any

import pytest

from extender.doctor.facts import Finding
from extender.doctor.scheduler_config import examine_scheduler, read_scheduler
from extender.doctor.score_plugins import score_weights
from extender.model.documents import read_document
from extender.settings.rules import ScorePlugins
from extender.wire.scheduler_config import Profile
from tests.doctor.facts import settings
from tests.doctor.test_scheduler_config import OFF, STANZA, document

FIT, BALANCE = "NodeResourcesFit", "NodeResourcesBalancedAllocation"


def examine(given: dict[str, Any], **ours: Any) -> list[Finding]:
    """What is found beside faults of the file: a plugin of another build is one."""
    config, _ = read_scheduler(given)
    assert config is not None
    return examine_scheduler(config, settings(**ours))


def weighing(**weights: int) -> dict[str, Any]:
    """A configuration in which plugins have these weights at multiPoint."""
    enabled = [{"name": name, "weight": weight} for name, weight in weights.items()]
    return document(plugins={"multiPoint": {**OFF["multiPoint"], "enabled": enabled}})


def configured(plugin: str, args: dict[str, Any]) -> dict[str, Any]:
    given = document()
    given["profiles"][0]["pluginConfig"] = [{"name": plugin, "args": args}]
    return given


def scoring_at_point(*, enabled: list[str] | None = None, disabled: list[str] | None = None) -> dict[str, Any]:
    points = {"enabled": enabled or [], "disabled": disabled or []}
    return document(
        plugins={**OFF, "score": {key: [{"name": name} for name in names] for key, names in points.items()}}
    )


PREFERRED_SSD = [{"weight": 1, "preference": {"matchExpressions": [{"key": "ssd", "operator": "Exists"}]}}]
ADDED = {"addedAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": PREFERRED_SSD}}
GPU = [{"name": "cpu", "weight": 1}, {"name": "nvidia.com/gpu", "weight": 3}]
BOTH = [{"name": "memory", "weight": 2}, {"name": "cpu", "weight": 2}]
ANOTHER = {
    **STANZA,
    "urlPrefix": "http://127.0.0.1:9999",
    "filterVerb": "",
    "preemptVerb": "",
    "prioritizeVerb": "rate",
}
TEN_TIMES = {"TaintToleration": 30, "NodeAffinity": 20, FIT: 10, BALANCE: 10, "ImageLocality": 10}
ONE = {"answers": {"names": "one"}}
FOUND: dict[str, tuple[dict[str, Any], dict[str, Any], list[tuple[str, str, str]]]] = {
    "another weight": (
        weighing(NodeAffinity=5), ONE,
        [("info", "other weights than the plugins: NodeAffinity 5", '"nodeAffinity":5')],
    ),
    "a plugin that does not score": (
        scoring_at_point(disabled=[BALANCE]), ONE,
        [("info", "NodeResourcesBalancedAllocation 0", '"nodeResourcesBalancedAllocation":0')],
    ),
    "images with much weight": (
        weighing(ImageLocality=5), ONE, [("info", "ImageLocality has weight 5", "others: [ImageLocality]")],
    ),
    "a plugin at score": (
        scoring_at_point(enabled=["Cost"]), ONE, [("warning", "Cost scores nodes", "others: [Cost]")],
    ),
    "a plugin that may score": (weighing(Cost=1), ONE, [("info", "Cost may score nodes", "others: [Cost]")]),
    "terms of the profile": (
        configured("NodeAffinity", ADDED), ONE, [("info", "NodeAffinity adds preferred terms", "others: [NodeAffinity]")],
    ),
    "other resources": (
        configured(FIT, {"scoringStrategy": {"type": "LeastAllocated", "resources": GPU}}), ONE,
        [("info", f"{FIT} does not score CPU and memory alone", "scoringStrategy: Ignored")],
    ),
    "other resources in balance": (
        configured(BALANCE, {"resources": GPU}), ONE,
        [("info", f"{BALANCE} does not score CPU and memory alone", "scoringStrategy: Ignored")],
    ),
    "another extender with scores": (
        document(top={"extenders": [STANZA, ANOTHER]}), ONE,
        [("info", "scores of the extender http://127.0.0.1:9999", "answers.names: shortlist")],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("given", "ours", "expected"), FOUND.values(), ids=FOUND)
def test_a_score_that_the_one_name_does_not_follow_is_found(
    given: dict[str, Any], ours: dict[str, Any], expected: list[tuple[str, str, str]]
) -> None:
    found = examine(given, **ours)
    assert [each.severity for each in found] == [severity for severity, _, _ in expected]
    for each, (_, problem, remedy) in zip(found, expected, strict=True):
        assert problem in each.problem
        assert remedy in each.remedy
    assert examine(given, answers={"names": "shortlist"}) == [], "kube-scheduler scores the nodes of a list"


@pytest.mark.parametrize(
    ("given", "answers"),
    [
        (weighing(), {}),
        (weighing(**TEN_TIMES), {}),
        (weighing(NodeAffinity=5), {"scores": {"nodeAffinity": 5}}),
        (scoring_at_point(enabled=["Cost"]), {"scores": {"others": ["Cost"]}}),
        (configured(FIT, {"scoringStrategy": {"type": "LeastAllocated", "resources": BOTH}}), {}),
        (configured(FIT, {"scoringStrategy": {"type": "LeastAllocated", "resources": GPU}}), {"scoringStrategy": "Ignored"}),
        (weighing(VolumeBinding=3, NodePorts=1), {}),
        (scoring_at_point(disabled=["*"]), {}),
    ],
    ids=["defaults", "times ten", "weights", "others", "usual resources", "ignored", "volumes", "no scores at all"],
)  # fmt: skip
def test_a_profile_that_the_settings_follow_gives_no_finding(given: dict[str, Any], answers: dict[str, Any]) -> None:
    assert examine(given, answers={"names": "one", **answers}) == []


def test_an_entry_at_score_wins_over_multi_point_and_one_without_a_weight_has_weight_one() -> None:
    at_score, everywhere = (
        [{"name": "NodeAffinity"}],
        [{"name": "NodeAffinity", "weight": 7}, {"name": FIT, "weight": 4}],
    )
    plugins = {"multiPoint": {"enabled": everywhere}, "score": {"enabled": at_score}}
    usual = ScorePlugins().by_plugin() | {"ImageLocality": 1}
    assert score_weights(read_document({"plugins": plugins}, Profile)) == usual | {"NodeAffinity": 1, FIT: 4}
