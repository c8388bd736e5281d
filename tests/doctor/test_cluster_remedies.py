"""Each wrong set-up of a service and its cluster is named, its remedy is applied as the text says, and doctor says it no more."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from extender.tasks.webhook import keeper
from tests.cli.doctor_set_up import Setup, installed_policies, kept, set_up, with_policies
from tests.doctor.cluster_rows import SURROUNDINGS, Playing, Row
from tests.doctor.policy_rows import MOVES, MOVES_BESIDE_PLUGINS, MOVES_SWITCHED_OFF, POLICIES, QUOTAS
from tests.fakes import PATIENCE

GROUPS: dict[str, tuple[Mapping[str, Row], dict[str, Any]]] = {
    "surroundings": (SURROUNDINGS, {}),
    "policies": (POLICIES, {"policies": with_policies()}),
    "moves": (MOVES, {"policies": with_policies()}),
    "moves in augment": (MOVES_BESIDE_PLUGINS, {"policies": with_policies(), "mode": "augment"}),
    "moves switched off": (MOVES_SWITCHED_OFF, {"policies": with_policies(), "execution": {"enabled": False}}),
    "quotas": (QUOTAS, {"quota": {"enabled": True}}),
}
ROWS = [(group, name) for group, (rows, _) in GROUPS.items() for name in rows]


async def remedies_of(problem: str, one: Playing) -> list[str]:
    """What doctor says is to be done about a problem."""
    _, document = await one.setup.doctor(*one.arguments)
    return [found["remedy"] for found in document["findings"] if fnmatchcase(found["problem"], problem)]


async def played(row: Row, setup: Setup) -> None:
    for apply in row.choices:
        one = Playing(setup)
        row.wrong(one)
        (text,) = await remedies_of(row.problem, one)
        assert text.startswith(row.remedy)
        apply(one, text)
        async with asyncio.timeout(PATIENCE):
            while await remedies_of(row.problem, one):  # noqa: ASYNC110 -- the service sees the change by its watch
                await asyncio.sleep(0.02)


@pytest.mark.parametrize(("group", "name"), ROWS, ids=[f"{group}: {name}" for group, name in ROWS])
async def test_a_wrong_set_up_is_named_and_its_remedy_ends_it(
    group: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper, "POLL_SECONDS", 0.5)
    rows, sections = GROUPS[group]
    objects = installed_policies()[:-3] if group == "policies" else []
    async with set_up(tmp_path, pods=objects, **sections) as setup:
        if group == "policies":
            await kept(setup)
        await played(rows[name], setup)
