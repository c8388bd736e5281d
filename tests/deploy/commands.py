"""The commands in remedies of `extender doctor`, in grafana/runbook.md and in deploy/docs/troubleshoot.md, as a user would paste them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from extender.doctor.facts import Facts, Finding, Groups, needed_permissions
from extender.doctor.policies import examine_groups, examine_policies
from extender.features.execution.report import examine_moves
from extender.features.quotas.report import examine_quotas
from extender.settings.configuration import Settings
from tests.deploy.building import ROOT
from tests.doctor.facts import GOOD, diagnose, settings
from tests.doctor.test_findings import MISTAKES as WRONG_SERVICES
from tests.doctor.test_groups import NOW, group
from tests.doctor.test_policies import MISTAKES as WRONG_POLICIES
from tests.doctor.test_policies import in_use, policed
from tests.features.quotas.test_findings import MISTAKES as WRONG_QUOTAS

RUNBOOK: Final = (ROOT / "grafana" / "runbook.md").read_text("utf-8")
SYMPTOMS: Final = (ROOT / "deploy" / "docs" / "troubleshoot.md").read_text("utf-8")
VARIABLES: Final = {"HOST": "localhost"} | dict(re.findall(r"^    ([A-Z_]+)=(\S+) +#", RUNBOOK, re.MULTILINE))
_MANY: Final = 12  # more than are named one by one
_COMMAND: Final = re.compile(r"`((?:kubectl|extender|curl) [^`]+)`")
_LINE: Final = re.compile(r"^    ((?:kubectl|extender|curl) .+)$", re.MULTILINE)
_NAMED: Final = ("extender certs", "kubectl placement")  # where they come from, not what to run
_KINDS: Final = (
    "podschedulingpolicies.placement.extender.dev",
    "groupplacements.placement.extender.dev",
    "topologydomains.placement.extender.dev",
)


def of_runbook() -> list[str]:
    """Each command of the runbook and of the page of symptoms once, in order."""
    return list(dict.fromkeys([*_commands(RUNBOOK + SYMPTOMS), *_LINE.findall(SYMPTOMS)]))


def in_sources() -> set[str]:
    """The commands in the code of doctor, also commands of findings that are not made here.

    Without commands that name an object of the cluster, which tests/doctor/policy_rows.py plays.
    """
    extender = ROOT / "extender"
    files = [*extender.glob("doctor/*.py"), *extender.glob("features/*/report.py"), extender / "cli" / "doctor.py"]
    return {
        command
        for file in files
        for command in _commands(file.read_text("utf-8"))
        if not re.search(r"(?<!\$)\{", command)
    }


def of_doctor() -> list[str]:
    """Each command once, of findings about everything that can be wrong with a cluster."""
    return list(dict.fromkeys(command for finding in _findings() for command in _commands(finding.remedy)))


def _commands(text: str) -> list[str]:
    return [command for command in _COMMAND.findall(text) if command not in _NAMED]


def _findings() -> Iterator[Finding]:
    for facts, _ in WRONG_SERVICES.values():
        yield from diagnose(facts)
    for facts, _ in WRONG_POLICIES.values():
        yield from examine_policies(facts)
    yield from examine_policies(policed(not_served=_KINDS, policies=(in_use(matched=0),) * _MANY))
    yield from examine_groups(Facts(Settings(), NOW.timestamp(), groups=Groups([group(reason="Other")] * _MANY)))
    watching = policed(policies=(in_use(when=["Execution"], execution={"mode": "Evict"}),))
    yield from examine_moves(replace(watching, settings=settings(mode="augment", policies={"enabled": True})))
    charging = next(iter(WRONG_QUOTAS.values()))[0]
    yield from examine_quotas(replace(GOOD, quotas=[charging] * _MANY))
    for ours in (Settings(), settings(policies={"enabled": True}), settings(server={"paths": {"bind": "/bind"}})):
        yield from diagnose(_denied(ours))


def _denied(ours: Settings) -> Facts:
    return replace(GOOD, settings=ours, denied=needed_permissions(ours))
