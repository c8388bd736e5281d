"""The law in small, by counted operations: each dimension at small sizes. And that no input is without a row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from extender.settings.limits import ConstraintLimits
from extender.wire.policies.policy_validation import validate
from tests.costs import events
from tests.costs.building import OF_EVENTS, Row, base
from tests.costs.fields import inputs, matches, policy_fields
from tests.costs.judging import KNOWN, MOST_SECONDS, figures_of_page, wanted, written
from tests.costs.measuring import SECONDS_AN_OPERATION, Measured, Operations, Play, World
from tests.costs.rows import ROWS
from tests.costs.rows_of_policies import grown_policy

pytestmark = pytest.mark.usefixtures("without_log")

NODES = 12
SIZES = (32, 64, 128)
MANY = (250, 1000)
GROWTH = 3.2  # of what the second doubling adds: n log n has 2.3, n² 4
STEP_NOISE = 5_000 * SECONDS_AN_OPERATION
NOISE = 100_000 * SECONDS_AN_OPERATION  # of the sum: a preemption or an explanation more


def test_every_public_input_has_a_row_and_every_row_an_input() -> None:
    paths = inputs()
    patterns = {pattern for row in ROWS for pattern in row.fields}
    assert [path for path in paths if not any(matches(pattern, path) for pattern in patterns)] == []
    assert [pattern for pattern in patterns if not any(matches(pattern, path) for path in paths)] == []


def test_a_row_has_a_name_of_its_own_and_what_is_known_to_fail_is_a_row() -> None:
    names = [row.name for row in ROWS]
    assert len(set(names)) == len(names)
    assert set(KNOWN) <= set(names)


def test_the_documentation_names_each_dimension_with_its_limit() -> None:
    assert written() == wanted(ROWS), "write it again: python -m tests.costs --write"


def test_each_row_measures_something() -> None:
    assert [row.name for row in ROWS if row.play(1) == Play()] == []
    assert [name for name, figures in figures_of_page().items() if not all(figures[:2])] == [], (
        "python -m tests.costs --write"
    )


@pytest.mark.parametrize("path", [path for path, _ in policy_fields() if path.endswith(("[]", "{}"))])
def test_a_policy_with_a_list_as_long_as_its_schema_allows_is_valid(path: str) -> None:
    schema = dict(policy_fields())[path]
    most = schema.get("maxItems") or schema.get("maxProperties") or len(schema["items"]["enum"])
    assert validate(grown_policy(path, most), ConstraintLimits()) == []


@pytest.mark.parametrize("row", [row for row in ROWS if row.limit == OF_EVENTS], ids=lambda row: row.name)
def test_objects_of_any_number_make_no_step_longer(row: Row) -> None:
    """Where no limit is needed: a step is a slice of events, or looks at a bounded number of the objects."""
    world = World(Operations(), base(NODES), {**row.sections, "audit": {"pause": "0s"}})
    try:
        few, many = (world.measure(row.play(size)).longest for size in MANY)
    finally:
        world.close()
    assert world.errors == []
    assert many <= few + STEP_NOISE


@pytest.mark.parametrize("crowd", events.CROWDS, ids=lambda crowd: crowd.name)
def test_an_event_costs_the_same_beside_many_objects_that_it_does_not_concern(crowd: events.Crowd) -> None:
    few, many = (events.by_kind(crowd, size, Operations(), nodes=200) for size in (10, 200))
    grown = {kind: round(many[kind] / few[kind], 2) for kind in events.KINDS}
    assert {kind: growth for kind, growth in grown.items() if growth > events.MOST_GROWTH} == {}


def test_the_documentation_names_each_kind_of_event() -> None:
    assert events.written() == list(events.KINDS), "write it again: python -m tests.costs --write events"


def test_no_dimension_takes_a_long_step_or_grows_like_a_square_at_small_sizes() -> None:
    """By counted calls. The fields of a policy are left to `make costs`: their schema allows a few of each."""
    worlds: dict[str, World] = {}
    problems = []
    try:
        for row in ROWS:
            if row.limit.startswith("CRD: max"):
                continue
            key = str(row.sections)
            if key not in worlds:
                sections = {**row.sections, "audit": {"pause": "0s"}}  # else its steps come now here, now there
                worlds[key] = World(Operations(), base(NODES), sections)
            problems += _problems(row, worlds[key])
    finally:
        errors = [error for world in worlds.values() for error in world.errors]
        for world in worlds.values():
            world.close()
    assert errors == []
    assert problems == []


@pytest.mark.parametrize(
    ("cost", "grows"),
    [
        pytest.param(lambda size: 3 * size * size, True, id="a square"),
        pytest.param(lambda size: 60 * size + 10_000 * (size > 100), False, id="another way from some size on"),
    ],
)
def test_a_step_that_takes_another_way_from_some_size_on_does_not_grow(
    monkeypatch: pytest.MonkeyPatch, cost: Callable[[int], int], *, grows: bool
) -> None:
    sizes: Any = lambda size: size  # noqa: E731 (a play that is its size)
    row, world = Row("row", (), "", lambda _: 10_000, "", sizes), World(Operations(), base(NODES), {})
    world.close()
    monkeypatch.setattr(world, "measure", lambda size: Measured(cost(size) * SECONDS_AN_OPERATION, 0.0, "step"))
    assert bool(_problems(row, world)) is grows


def _problems(row: Row, world: World) -> list[str]:
    most = row.most(world.settings)
    found = [world.measure(row.play(size)) for size in SIZES if size <= most]
    problems = []
    if found and found[-1].longest > MOST_SECONDS:
        problems.append(f"{row.name}: a step of {found[-1].longest:.3f} s ({found[-1].what})")
    if len(found) == len(SIZES) and row.name not in KNOWN:
        is_one_step = len({each.what for each in found}) == 1
        if is_one_step and _grows([each.longest for each in found], STEP_NOISE) and _goes_on(found, row, world):
            problems.append(f"{row.name}: {found[-1].what}: {[round(each.longest, 4) for each in found]}")
        spent = [each.spent for each in found]
        if _grows(spent, NOISE):  # a round of some job may have come in between
            spent = [min(each, world.measure(row.play(size)).spent) for each, size in zip(spent, SIZES, strict=True)]
        if _grows(spent, NOISE):
            problems.append(f"{row.name}: all steps: {[round(each, 4) for each in spent]}")
    return [] if row.name in KNOWN else problems


def _goes_on(found: list[Measured], row: Row, world: World) -> bool:
    """Whether the longest step grows so at the next doubling too. Where a longer way is taken from some size on, it does not."""
    size = 2 * SIZES[-1]
    if size > row.most(world.settings):
        return True
    return _grows([*(each.longest for each in found[1:]), world.measure(row.play(size)).longest], STEP_NOISE)


def _grows(costs: list[float], noise: float) -> bool:
    """Worse than n log n."""
    first, second = costs[1] - costs[0], costs[2] - costs[1]
    return second > GROWTH * max(first, 0.0) + noise
