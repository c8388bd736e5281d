"""Scenario files: what is refused, with the field's path, and what a scenario makes of its groups and templates."""

from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

from extender.cli.main import CommandError
from extender.cli.simulate import read_scenario
from extender.model.documents import DocumentError
from extender.model.units import Duration
from extender.simulator.json_objects import JsonObject, labels_of, name_of, namespace_of, node_of
from extender.simulator.scenario.faults import CutLine, JumpClock, LoseBookmarks, Restart
from extender.simulator.scenario.language import (
    Arrive,
    ChangeFaults,
    CostComparison,
    Expect,
    Pause,
    Play,
    Template,
    parse_scenario,
)
from extender.simulator.scenario.synthetic import chosen, draw, make_cluster, make_pod
from tests.simulator.plain import ZONE, node, pod

CONFIG = Path(__file__).parents[3] / "config"


def _document(**parts: Any) -> dict[str, Any]:
    return {
        "apiVersion": "placement.extender.dev/v1alpha1",
        "kind": "Scenario",
        "name": "test",
        "templates": {"web": {"labels": {"app": "web-{v}", "number": "{i}"}, "variants": 2}},
        "steps": [],
        **parts,
    }


def _problems(**parts: Any) -> tuple[str, ...]:
    with pytest.raises(DocumentError) as caught:
        parse_scenario(_document(**parts))
    return caught.value.problems


def _play(**parts: Any) -> Play:
    return parse_scenario(_document(**parts))


def test_a_template_that_the_api_server_refuses_is_named_with_the_path(tmp_path: Path) -> None:
    """A misspelt field would be no rule, and the scenario would hold without it."""
    misspelt = {"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "Never"}]}
    path = tmp_path / "scenario.yaml"
    path.write_text(
        yaml.safe_dump(_document(templates={"web": {"spec": misspelt}, "db": {"spec": {"toleration": []}}}))
    )
    with pytest.raises(CommandError) as caught:
        read_scenario(str(path))
    assert [problem.partition(": ")[2].partition(": ")[0] for problem in caught.value.lines] == [
        "templates.db.spec.toleration",
        "templates.web.spec.topologySpreadConstraints[0].whenUnsatisfiable",
    ]


def test_a_list_in_a_template_may_be_written_once_and_repeated() -> None:
    values = {"repeat": 2, "each": "v{n}-{i}"}
    terms = {"repeat": 2, "each": {"key": "k{n}", "values": values}}
    made = make_pod(Template(spec={"terms": terms}), "web", "shop", 7)
    both = ["v0-7", "v1-7"]
    assert made["spec"]["terms"] == [{"key": "k0", "values": both}, {"key": "k1", "values": both}]


@pytest.mark.parametrize(
    ("parts", "problem"),
    [
        ({"sede": 1}, 'sede: unknown field, did you mean "seed"?'),
        ({"seed": "one"}, "seed: expected int, got str"),
        ({"templates": {"web": {"lables": {}}}}, 'templates.web.lables: unknown field, did you mean "labels"?'),
        ({"cluster": {"nodes": [{"zones": 0}]}}, "cluster.nodes[0].zones: expected int >= 1"),
        (
            {"cluster": {"running": [{"template": "nix", "count": 1}]}},
            'cluster.running[0].template: unknown template "nix"',
        ),
        ({"scheduler": {"bindDelay": ["0s", "soon"]}}, 'scheduler.bindDelay[1]: expected a duration such as "15s"'),
        ({"steps": [{"arrive": {"template": "web"}}]}, "steps[0].arrive.count: is missing"),
        ({"steps": [{"arrive": {"template": "web", "count": "x"}}]}, "steps[0].arrive.count: expected int | array"),
        ({"steps": [{"arrive": {"template": "web", "count": [3, 1]}}]}, "steps[0].arrive.count: expected a number, or"),
        (
            {"steps": [{"arrive": {"template": "nix", "count": 1}}]},
            'steps[0].arrive.template: unknown template "n',
        ),
        ({"steps": [{"arrive": {"count": 1}}]}, "steps[0].arrive.template: expected either a template or a mix"),
        ({"steps": [{"arrives": {}}]}, "steps[0]: expected one of arrive, relabelNamespace"),
        ({"steps": [{"title": "nothing to do"}]}, "steps[0]: expected one of arrive, relabelNamespace"),
        ({"steps": [{"settle": 3}]}, "steps[0].settle: expected a mapping, got int"),
        ({"steps": [{"faults": 3}]}, "steps[0].faults: expected a list of faults, got int"),
        (
            {"steps": [{"faults": [{"cutLine": {"probability": 2}}]}]},
            "steps[0].faults[0].cutLine.probability: expected fl",
        ),
        ({"steps": [{"faults": [{"cutLines": {}}]}]}, "steps[0].faults[0]: expected one of cutLine, endWatch"),
        ({"steps": [{"faults": [{"stall": {}}]}]}, "steps[0].faults[0].stall.time: is missing"),
        (
            {"steps": [{"faults": [{"fail": {"kinds": ["pod"]}}]}]},
            'steps[0].faults[0].fail.kinds: unknown kind "pod',
        ),
        ({"steps": [{"faults": [{"fail": {"verbs": ["get"]}}]}]}, "steps[0].faults[0].fail.verbs[0]: expected read or"),
        ({"steps": [{"faults": [{"restart": {"down": 3}}]}]}, "steps[0].faults[0].restart.down: expected a duration"),
        (
            {"steps": [{"faults": [{"delayEvents": {"time": ["2s", "1s"]}}]}]},
            "steps[0].faults[0].delayEvents.time: expected minimum",
        ),
        ({"faults": [{"restart": {}}]}, "faults[0]: expected one of cutLine, endWatch"),
        ({"forever": [{"pause": {"tiem": "1s"}}]}, 'forever[0].pause.tiem: unknown field, did you mean "time"?'),
    ],
)
def test_a_fault_is_reported_with_the_path_of_its_field(parts: dict[str, Any], problem: str) -> None:
    assert any(found.startswith(problem) for found in _problems(**parts)), _problems(**parts)


def test_all_faults_of_steps_are_reported_at_once() -> None:
    assert len(_problems(steps=[{"settle": 3}, {"pause": {}}, {"arrive": {"count": 1}}])) == 3


def test_steps_keep_their_order_their_titles_and_their_paths() -> None:
    play = _play(steps=[{"title": "First", "arrive": {"template": "web", "count": [1, 3]}}, {"settle": None}])
    first, second = play.steps
    assert (first.title, first.path, second.path) == ("First", "steps[0].arrive", "steps[1].settle")
    assert isinstance(first.action, Arrive)
    assert first.action.count == (1, 3)


def test_faults_stand_in_a_section_or_a_step_with_what_they_leave_open_filled_in() -> None:
    steps = [{"faults": [{"cutLine": None}, {"restart": {"newHistory": True}}, {"jumpClock": {"by": "1m"}}]}]
    play = _play(faults=[{"loseBookmarks": {"kinds": ["nodes"]}}, {"cutLine": None}], steps=[*steps, {"faults": None}])
    assert play.faults == (LoseBookmarks(kinds=("nodes",)), CutLine())
    first, second = (step.action for step in play.steps)
    assert first == ChangeFaults((CutLine(probability=1.0), Restart(new_history=True), JumpClock(by=Duration(60))))
    assert second == ChangeFaults(())


@pytest.mark.parametrize(
    "path", sorted([CONFIG / "demo/scenario.yaml", *(CONFIG / "scenarios").glob("*.yaml")]), ids=str
)
def test_the_scenarios_that_come_with_the_project_are_valid(path: Path) -> None:
    assert parse_scenario(yaml.safe_load(path.read_text("utf-8"))).steps


def test_a_value_may_differ_in_a_short_run() -> None:
    raw = _document(
        cluster={"nodes": [{"count": {"full": [40, 60], "short": 5}}]},
        comparison={"without": "x", "maxSlowdown": {"full": 1.5, "short": None}},
        steps=[{"pause": {"time": {"full": "1s", "short": "10ms"}}}, {"expect": {"placed": {"full": 9, "short": 2}}}],
    )
    full, short = parse_scenario(raw), parse_scenario(raw, short=True)
    assert [play.scenario.cluster.nodes[0].count for play in (full, short)] == [(40, 60), 5]
    assert [play.scenario.comparison for play in (full, short)] == [
        CostComparison(without="x", max_slowdown=1.5),
        CostComparison(without="x"),
    ]
    assert [step.action for step in full.steps] == [Pause(Duration(1)), Expect(placed=9)]
    assert [step.action for step in short.steps] == [Pause(Duration(0.01)), Expect(placed=2)]


def test_amounts_are_drawn_from_the_seed() -> None:
    drawn = [draw((1, 1_000), Random(7)) for _ in range(2)]
    assert drawn[0] == drawn[1] != draw((1, 1_000), Random(8))
    assert draw(5, Random(7)) == 5


def test_several_patterns_choose_names_in_their_own_order() -> None:
    assert chosen("shop*, lab", ["lab", "payments", "shop", "shop-canary"]) == ["lab", "shop", "shop-canary"]


def _cluster(play: Play, files: list[JsonObject] | None = None) -> dict[str, list[JsonObject]]:
    objects = make_cluster(play.scenario.cluster, play.templates, files or [], Random(1))
    return {kind: [obj for obj in objects if obj["kind"] == kind] for kind in ("Node", "Namespace", "Pod")}


def test_groups_become_nodes_namespaces_and_running_pods() -> None:
    play = _play(
        cluster={
            "nodes": [{"count": 4, "zones": 2, "taints": [{"key": "a", "effect": "NoSchedule"}]}],
            "namespaces": [{"count": 2, "name": "team-{i}", "labels": {"group": "shared"}}],
            "running": [{"template": "web", "count": 6, "namespaces": "team-*", "nodes": "node-[01]"}],
        }
    )
    made = _cluster(play)
    assert [labels_of(found)[ZONE] for found in made["Node"]] == ["zone-0", "zone-1", "zone-0", "zone-1"]
    assert made["Node"][0]["spec"]["taints"] == [{"key": "a", "effect": "NoSchedule"}]
    assert labels_of(made["Namespace"][1]) == {"kubernetes.io/metadata.name": "team-1", "group": "shared"}
    assert [(namespace_of(found), node_of(found)) for found in made["Pod"]] == [
        ("team-0", "node-0"),
        ("team-0", "node-1"),
        ("team-1", "node-0"),
        ("team-1", "node-1"),
        ("team-0", "node-0"),
        ("team-0", "node-1"),
    ]
    assert labels_of(made["Pod"][3]) == {"app": "web-1", "number": "3", ZONE: "zone-1"}
    assert made["Pod"][0]["status"] == {"phase": "Running"}


def test_objects_of_files_are_completed_and_never_changed_themselves() -> None:
    files = [node("n1", "z1"), pod("web-1", on="n1", priority=7)]
    made = _cluster(_play(), files)
    assert labels_of(made["Pod"][0]) == {ZONE: "z1"}
    assert (made["Pod"][0]["spec"]["priority"], name_of(made["Node"][0])) == (7, "n1")
    assert labels_of(files[1]) == {}
