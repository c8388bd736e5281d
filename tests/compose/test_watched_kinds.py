"""Which kinds the settings make the service watch, and that every reader of the table follows it."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from msgspec.structs import replace

from extender.compose.foundation import make_index
from extender.doctor.facts import needed_permissions
from extender.model.objects import DisruptionBudget
from extender.settings.configuration import Settings, default_settings
from extender.settings.jobs import PreemptionSettings
from extender.wire.objects import kinds as table
from extender.wire.objects.kinds import WATCHED_KINDS, Identity, Kind, WatchedKind, watched_kinds
from extender.wire.objects.objects_json import BudgetJson
from extender.wire.objects.trim import trim_budget
from extender.wire.snapshots import decode_snapshot
from tests.builders import index_of, settings
from tests.compose.services import unconnected

ALWAYS = {"namespaces", "nodes", "pods"}
WORKLOADS = {"services", "replicationcontrollers", "replicasets", "statefulsets"}
ZONE = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}


def spread(**found: Any) -> Settings:
    """Settings without preemption, with these of topology spread."""
    return settings(rules={"topologySpread": found}, preemption={"mode": "off"})


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (settings(preemption={"mode": "execute"}), ALWAYS | WORKLOADS | {"poddisruptionbudgets"}),
        (settings(preemption={"mode": "advise"}), ALWAYS | WORKLOADS | {"poddisruptionbudgets"}),
        (spread(defaultingType="System"), ALWAYS | WORKLOADS),
        (spread(defaultingType="List", defaultConstraints=[ZONE]), ALWAYS | WORKLOADS),
        (spread(defaultingType="List", defaultConstraints=[]), ALWAYS),
        (spread(enabled=False), ALWAYS),
        (
            replace(default_settings("augment"), shadow=True, preemption=PreemptionSettings(mode="off")),
            ALWAYS | WORKLOADS,
        ),
    ],
    ids=["execute", "advise", "System", "List with constraints", "List without constraints", "switched off", "shadow"],
)
def test_a_kind_is_watched_where_a_rule_or_preemption_reads_it(given: Settings, wanted: set[str]) -> None:
    assert {each.kind.name for each in watched_kinds(given)} == wanted


OWN_POLICIES = {"podschedulingpolicies", "clusterpodschedulingpolicies"}
KUPIDS = {f"{name}.kupid.gardener.cloud" for name in OWN_POLICIES}


@pytest.mark.parametrize(
    ("policies", "wanted"),
    [
        ({"enabled": False, "kupid": True}, set()),
        ({"enabled": True}, OWN_POLICIES | {"groupplacements", "topologydomains"}),
        ({"enabled": True, "kupid": True}, OWN_POLICIES | KUPIDS | {"groupplacements", "topologydomains"}),
    ],
    ids=["disabled", "enabled", "with kupid's"],
)
def test_policies_are_watched_where_they_are_enabled(policies: dict[str, Any], wanted: set[str]) -> None:
    without = {each.kind.name for each in watched_kinds(settings())}
    assert {each.kind.name for each in watched_kinds(settings(policies=policies))} - without == wanted


def test_policies_of_one_name_in_two_groups_are_two_kinds_with_one_resource() -> None:
    ours, kupids = (each.kind for each in WATCHED_KINDS if each.kind.resource == "podschedulingpolicies")
    assert (ours.name, kupids.name) == ("podschedulingpolicies", "podschedulingpolicies.kupid.gardener.cloud")
    assert (ours.group, kupids.group) == ("placement.extender.dev", "kupid.gardener.cloud")


def followers(given: Settings) -> tuple[set[str], set[str]]:
    """The kinds that have a reflector, and those with the permission to list and to watch."""
    names = [name.split() for name, _ in unconnected(given).jobs]
    requested = needed_permissions(given)
    granted = {each.resource for each in requested if each.verb == "list"} & {
        each.resource for each in requested if each.verb == "watch"
    }
    return {name[-1] for name in names if name[0] in {"feed", "reflector"}}, granted


def test_a_new_row_is_watched_and_its_permissions_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    quiet = spread(enabled=False)
    assert followers(quiet) == (ALWAYS, ALWAYS)
    gates = Kind("gates", "/apis/example.com/v1/gates", BudgetJson, trim_budget)
    monkeypatch.setattr(table, "WATCHED_KINDS", (*WATCHED_KINDS, WatchedKind("Gate", gates, "why", lambda _: True)))
    assert followers(quiet) == (ALWAYS | {"gates"}, ALWAYS | {"gates"})
    (requested,) = {
        each.review_arguments for each in needed_permissions(quiet) if each.resource == "gates" and each.verb == "list"
    }
    assert requested == ("list", "example.com", "gates", "", "", "")


def test_a_snapshot_has_the_disruption_budgets_that_a_preemption_is_planned_with() -> None:
    spec, status = {"selector": {"matchLabels": {"app": "web"}}}, {"disruptionsAllowed": 1}
    metadata = {"name": "web", "namespace": "ns"}
    budget = {"kind": "PodDisruptionBudget", "metadata": metadata, "spec": spec, "status": status}
    found = decode_snapshot(orjson.dumps({"kind": "List", "items": [budget]}))
    index = index_of(*found.objects)
    (held,) = index.budgets.objects.values()
    assert isinstance(held, DisruptionBudget)
    assert (found.skipped, found.unreadable) == ({}, [])


@pytest.mark.parametrize("row", WATCHED_KINDS, ids=lambda row: row.kind.name)
def test_the_index_takes_in_every_kind_and_gives_it_up_again(row: WatchedKind) -> None:
    index = make_index(settings())
    before, found = index.statistics(), row.kind.named(Identity("web", "ns", "uid"))
    assert (index.upsert(found), index.upsert(found), index.statistics() != before) == (True, False, True)
    assert (index.delete(found), index.delete(found), index.statistics() == before) == (True, False, True)
