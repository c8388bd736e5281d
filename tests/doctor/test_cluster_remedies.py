"""Each wrong set-up of a service and its cluster is named, its remedy is applied as the text says, and doctor says it no more."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from extender.doctor.policies import examine_policies
from tests.cli.doctor_set_up import Setup, installed_policies, kept, set_up, with_policies
from tests.cli.serving import configuration
from tests.doctor.cluster_rows import CALLS, SURROUNDINGS, Playing, Row
from tests.doctor.facts import settings
from tests.doctor.policy_rows import MOVES, MOVES_BESIDE_PLUGINS, MOVES_SWITCHED_OFF, POLICIES, QUOTAS
from tests.doctor.test_policies import in_use, policed
from tests.fakes import PATIENCE

GROUPS: dict[str, tuple[Mapping[str, Row], dict[str, Any]]] = {
    "surroundings": (SURROUNDINGS, {}),
    "calls": (CALLS, {"requests": 0}),
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


async def done(step: Awaitable[None] | None) -> None:
    if step is not None:
        await step


async def played(row: Row, setup: Setup) -> None:
    for apply in row.choices:
        one = Playing(setup)
        texts: list[str] = []
        async with asyncio.timeout(PATIENCE):
            while not texts:  # the leader may have been faster, and have made it right by itself
                await done(row.wrong(one))
                texts = await remedies_of(row.problem, one)
        (text,) = texts
        assert text.startswith(row.remedy)
        await done(apply(one, text))
        async with asyncio.timeout(PATIENCE):
            while await remedies_of(row.problem, one):  # noqa: ASYNC110 -- the service sees the change by its watch
                await asyncio.sleep(0.02)


@pytest.mark.parametrize(("group", "name"), ROWS, ids=[f"{group}: {name}" for group, name in ROWS])
async def test_a_wrong_set_up_is_named_and_its_remedy_ends_it(group: str, name: str, tmp_path: Path) -> None:
    rows, sections = GROUPS[group]
    objects = installed_policies()[:-3] if group == "policies" else []
    async with set_up(tmp_path, pods=objects, **sections) as setup:
        if group == "policies":
            await kept(setup)
        await played(rows[name], setup)


async def test_a_service_that_is_restarted_has_the_settings_of_its_file(tmp_path: Path) -> None:
    async with set_up(tmp_path) as setup:
        changed = configuration(tmp_path, kube={"kubeconfig": setup.kubeconfig}, server={"maxInFlight": 7})
        one = Playing(setup, ["--config", changed])
        problem = "server.maxInFlight is 100 in the running service but 7 in the file"
        assert await remedies_of(problem, one) == ["restart the service: it reads the file only at its start"]
    async with set_up(tmp_path, server={"maxInFlight": 7}) as setup:
        one = Playing(setup, ["--config", str(tmp_path / "extender.yaml")])
        assert await remedies_of("server.maxInFlight *", one) == []


HIDDEN = "autoscalers do not see the requirements of *"
IGNORED = "spec.spread.unavailableDomains and fullDomains of * have no effect: *"
EXCLUDING = {"spread": [{"topologyKey": "zone", "fullDomains": "Exclude"}]}


@pytest.mark.parametrize(
    ("problem", "remedy", "wrong", "right", "modes"),
    [
        (
            HIDDEN,
            "write it into new pods by when: [Admission, Scheduling]",
            {"when": ["Scheduling"], "nodeSelector": {"pool": "db"}},
            {"when": ["Admission", "Scheduling"], "nodeSelector": {"pool": "db"}},
            ("offload", "offload"),
        ),
        (IGNORED, "set mode: offload with rules.topologySpread.enabled, or remove the fields", EXCLUDING, {}, ("augment", "augment")),
        (IGNORED, "set mode: offload with rules.topologySpread.enabled, or remove the fields", EXCLUDING, EXCLUDING, ("augment", "offload")),
    ],
    ids=["hidden", "fields without effect are removed", "another mode"],
)  # fmt: skip
def test_a_policy_is_changed_as_the_remedy_says(
    problem: str, remedy: str, wrong: dict[str, Any], right: dict[str, Any], modes: tuple[str, str]
) -> None:
    before, after = (
        examine_policies(replace(policed(policies=(in_use(**spec),)), settings=settings(mode=mode)))
        for spec, mode in zip((wrong, right), modes, strict=True)
    )
    assert [found.remedy.startswith(remedy) for found in before if fnmatchcase(found.problem, problem)] == [True]
    assert [found for found in after if fnmatchcase(found.problem, problem)] == []
