"""Which permissions a configuration needs: those of what it uses, and no others."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import yaml

from extender.doctor.facts import manifest_of, needed_permissions
from tests.deploy.building import DEPLOY, load_all
from tests.doctor.facts import settings

READS = {"namespaces", "nodes", "pods"}
BUDGETS = "poddisruptionbudgets.policy"
DEDUCED = {"services", "replicationcontrollers", "replicasets.apps", "statefulsets.apps"}
NOMINATE, ANNOTATE = "patch pods/status", "patch pods"
RECORD = "create events.events.k8s.io"
EXECUTE = {NOMINATE, ANNOTATE, "get pods", RECORD}
NO_DEFAULTS = {"topologySpread": {"defaultingType": "List", "defaultConstraints": []}}
SILENT = {"nominateElsewhere": False, "requeue": False, "events": False}
QUIET: dict[str, Any] = {"rejectedPods": SILENT, "preemption": {"mode": "off"}}


def needed(**sections: Any) -> tuple[set[str], set[str]]:
    """The kinds that are listed and watched, and everything else."""
    requested = [str(each) for each in needed_permissions(settings(**sections))]
    assert len(requested) == len(set(requested)), "each once"
    verbs = {
        verb: {each.partition(" ")[2] for each in requested if each.startswith(f"{verb} ")}
        for verb in ("list", "watch")
    }
    assert verbs["list"] == verbs["watch"]
    return verbs["list"], {each for each in requested if not each.startswith(("list ", "watch "))}


@pytest.mark.parametrize(
    ("sections", "reads", "others"),
    [
        ({"preemption": {"mode": "execute"}}, READS | DEDUCED | {BUDGETS}, EXECUTE | {"delete pods"}),
        (
            {"preemption": {"mode": "execute", "eviction": "evict"}},
            READS | DEDUCED | {BUDGETS},
            EXECUTE | {"create pods/eviction"},
        ),
        ({"preemption": {"mode": "advise"}}, READS | DEDUCED | {BUDGETS}, {NOMINATE, ANNOTATE, RECORD}),
        (QUIET, READS | DEDUCED, set()),
        (QUIET | {"rules": NO_DEFAULTS}, READS, set()),
        (QUIET | {"rejectedPods": SILENT | {"nominateElsewhere": True}}, READS | DEDUCED, {NOMINATE}),
        (QUIET | {"rejectedPods": SILENT | {"requeue": True}}, READS | DEDUCED, {ANNOTATE}),
        (QUIET | {"rejectedPods": SILENT | {"events": True}}, READS | DEDUCED, {RECORD}),
        (QUIET | {"server": {"paths": {"bind": "/bind"}}}, READS | DEDUCED, {"create pods/binding", "get pods"}),
    ],
    ids=["execute", "evict", "advise", "quiet", "no defaults", "nominates", "requeues", "tells", "binds"],
)
def test_a_configuration_needs_what_it_uses(sections: dict[str, Any], reads: set[str], others: set[str]) -> None:
    assert needed(**sections) == (reads, others)


EVERYTHING: dict[str, Any] = {
    "leaderElection": {"enabled": True, "leaseNamespace": "team", "service": "placement-extender"},
    "policies": {"enabled": True, "webhook": {"serviceNamespace": "team"}},
    "preemption": {"mode": "execute", "eviction": "evict"},
    "quota": {"enabled": True},
    "server": {"paths": {"bind": "/bind"}},
}


@pytest.mark.parametrize("sections", [EVERYTHING, EVERYTHING | {"policies": {}}], ids=["policies", "no policies"])
def test_the_manifest_that_is_named_grants_the_permission(sections: dict[str, Any]) -> None:
    given = settings(**sections)
    for one in needed_permissions(given):
        assert (one.group, one.what, one.verb) in granted(manifest_of(one.what, one.verb, given)), one


def granted(manifest: str) -> set[tuple[str, str, str]]:
    """What a manifest grants, or adds to roles by its patches."""
    found: list[Any] = []
    for document in load_all(DEPLOY.parent / manifest):
        found += document.get("rules") or ()
        patches = [yaml.safe_load(each["patch"]) for each in document.get("patches") or ()]
        found += [each["value"] for patch in patches if isinstance(patch, list) for each in patch]
    rules = [each for each in found if isinstance(each, dict) and "verbs" in each]
    return {triple for rule in rules for triple in product(rule["apiGroups"], rule["resources"], rule["verbs"])}


def test_the_lease_is_asked_for_in_its_namespace_and_created_without_a_name() -> None:
    found = needed_permissions(settings(leaderElection={"enabled": True, "leaseNamespace": "team"}))
    lease = {each.review_arguments for each in found if each.resource == "leases"}
    group, name = "coordination.k8s.io", "placement-extender"
    assert lease == {
        ("create", group, "leases", "", "team", ""),
        ("get", group, "leases", "", "team", name),
        ("update", group, "leases", "", "team", name),
    }
