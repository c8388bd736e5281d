"""Scenarios that play one burst in each mode: read strictly, made for each mode, joined over seeds."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from extender.model.documents import DocumentError
from extender.settings.configuration import Settings
from extender.simulator.scenario.language import Play, parse_scenario
from tests.tools.bench.mode_bursts import join, ratios
from tests.tools.bench.scenario import KIND, ModesLoad, ModesScenario, parse_modes, plan_modes
from tests.tools.bench.small_scenario import SHIPPED

API_VERSION = "placement.extender.dev/v1alpha1"


def document(**parts: Any) -> dict[str, Any]:
    """A scenario as YAML gives it."""
    head = {"apiVersion": API_VERSION, "kind": KIND, "name": "small", "burst": "burst.yaml"}
    return head | {"cases": [{"labels": ["short"], "pods": [7, 9], "seeds": [3]}]} | parts


def burst(*steps: Any) -> Play:
    """Five pods arrive, settle, and are counted; unless other steps are given."""
    usual = ({"arrive": {"template": "web", "count": 5}}, {"settle": {"calm": "1s"}}, {"expect": {"placed": 5}})
    head = {"apiVersion": API_VERSION, "kind": "Scenario", "name": "burst"}
    return parse_scenario({**head, "templates": {"web": {}}, "steps": list(steps or usual)})


def loads(label: str = "", **parts: Any) -> list[ModesLoad]:
    return plan_modes(parse_modes(document(**parts)), burst(), Settings(), label)


@pytest.mark.parametrize(
    "path", [path for path in SHIPPED if KIND in path.read_text("utf-8")], ids=lambda path: path.stem
)
def test_every_shipped_scenario_is_legal_has_something_short_and_its_burst_beside_it(path: Path) -> None:
    read = parse_modes(yaml.safe_load(path.read_text("utf-8")))
    play = parse_scenario(yaml.safe_load((path.parent / read.burst).read_text("utf-8")))
    assert read.name == path.stem
    assert plan_modes(read, play, Settings(), "short")
    assert {bound.figure for bound in read.bounds} >= {"violations", "pending"}


@pytest.mark.parametrize(
    ("parts", "problem"),
    [
        ({"bursts": "x"}, 'bursts: unknown field, did you mean "burst"?'),
        ({"cases": [{"labels": [], "pods": []}]}, "cases[0].pods: there must be at least one size and one seed"),
        ({"bounds": [{"figure": "x", "atMost": 1, "where": {"way": 1}}]}, "bounds[0].where: expected dimensions"),
    ],
    ids=["an unknown field", "nothing to play", "an unknown dimension"],
)
def test_a_fault_is_rejected_with_its_path(parts: dict[str, Any], problem: str) -> None:
    with pytest.raises(DocumentError) as raised:
        parse_modes(document(**parts))
    assert raised.value.problems[0].startswith(problem)


def test_a_burst_in_which_pods_arrive_twice_has_no_size() -> None:
    scenario: ModesScenario = parse_modes(document())
    arrive = {"arrive": {"template": "web", "count": 5}}
    with pytest.raises(DocumentError) as raised:
        plan_modes(scenario, burst(arrive, arrive), Settings())
    assert raised.value.problems[0].startswith(
        "burst: expected a scenario with exactly one step arrive, which burst.yaml"
    )


def test_each_size_of_the_chosen_cases_is_a_load() -> None:
    cases = [
        {"labels": ["short"], "pods": [7, 9], "seeds": [3]},
        {"labels": ["nightly"], "pods": [20], "seeds": [1, 2]},
    ]
    assert [(load.pods, load.seeds) for load in loads(cases=cases)] == [(7, (3,)), (9, (3,)), (20, (1, 2))]
    assert [load.pods for load in loads("nightly", cases=cases)] == [20]


def test_a_mode_is_a_placement_and_the_component_that_binds() -> None:
    load = loads()[0]
    made = {
        mode: (load.settings_in(mode).placement, load.burst_in(mode).scenario.scheduler.bind)
        for mode in ("decisive", "bind", "cooperative")
    }
    assert made == {
        "decisive": ("decisive", False),
        "bind": ("cooperative", True),
        "cooperative": ("cooperative", False),
    }


def test_the_burst_has_as_many_pods_as_the_load_and_expects_nothing() -> None:
    steps = [step.action for step in loads()[1].burst_in("bind").steps]
    assert [getattr(action, "count", None) for action in steps] == [9, None]


def test_speeds_of_several_seeds_are_joined_by_the_median_and_faults_add_up() -> None:
    runs = [{"bound.perSecond": speed, "violations": found} for speed, found in ((10.0, 0), (90.0, 1), (20.0, 2))]
    assert join(runs) == {"bound.perSecond": 20.0, "violations": 3}


def test_speeds_are_ratios_to_mode_decisive() -> None:
    decisive = {"bound.perSecond": 100.0, "decided.perSecond": 200.0}
    found = ratios({"bound.perSecond": 50.0, "decided.perSecond": 20.0}, decisive)
    assert found == {"boundOfDecisive": 0.5, "decidedOfDecisive": 0.1}
