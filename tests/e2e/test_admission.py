"""The admission policy of deploy/base on a real apiserver: what the extender writes passes, everything else is refused.

The account is a cluster administrator here, so that a refusal is the policy's and not that of its roles.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml

from extender.kube.credentials import Access
from extender.kube.effects import PodRef
from extender.kube.errors import KubeError, Rejected
from extender.kube.session import open_session
from extender.kube.timing import SystemClock
from extender.kube.writer import Writer
from extender.model.objects import DELETION_COST
from extender.model.release import RELEASE_GATE, RELEASED_ANNOTATION
from extender.tasks.rejected_pods import REQUEUE_ANNOTATION
from tests.e2e.client import connect, pod_path
from tests.e2e.cluster import Cluster
from tests.e2e.granting import applied, granted, kubeconfig_of_account
from tests.e2e.rejected_writes import (
    ALL_POWERFUL,
    CALLS,
    IN_A_OR_B,
    MERGE,
    RELEASE,
    SINCE,
    STRATEGIC,
    TOLERATED,
    WEB,
    WRITES,
    Held,
    rejection,
    until_held,
)
from tests.simulator.plain import pod

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

WEB["spec"] |= {
    "schedulingGates": [{"name": RELEASE_GATE}, {"name": "example.com/quota"}],
    "nodeSelector": {"pool": "a"},
}
WEB["metadata"]["annotations"] = {"example.com/owner": "team-a", REQUEUE_ANNOTATION: "0"}
STATUS = {
    "podIP": "10.1.2.3",
    "conditions": [{"type": kind, "status": "True", "lastTransitionTime": SINCE} for kind in ("PodScheduled", "Ready")],
}


@pytest.fixture
async def held(cluster: Cluster, tmp_path: Path) -> AsyncIterator[Held]:
    """A pod with annotations and a status, and the account, which already is refused what the policy refuses."""
    await cluster.api.create(WEB)
    await cluster.api.request("PATCH", f"{pod_path(WEB)}/status", {"status": STATUS}, content_type=STRATEGIC)
    found = await cluster.api.request("GET", pod_path(WEB))
    async with applied(cluster.api, [*granted(), ALL_POWERFUL]):
        path = await kubeconfig_of_account(cluster.api, cluster.plane, tmp_path)
        token = yaml.safe_load(path.read_text("utf-8"))["users"][0]["user"]["token"]
        async with (
            connect(cluster.plane.url, token, cluster.plane.authority) as api,
            open_session(Access(kubeconfig=str(path)), SystemClock()) as session,
        ):
            await until_held(api)
            yield Held(api, session, PodRef("default", "web", found["metadata"]["uid"]))


# -- what the extender writes -------------------------------------------------------------------------------------


async def test_what_the_extender_writes_passes_one_after_the_other_on_one_pod(cluster: Cluster, held: Held) -> None:
    writer = Writer(held.session.writes, "placement-extender", "one")
    rejected: dict[str, KubeError] = {}
    for name, write in WRITES.items():
        try:
            await write(writer, held.ref)
        except Rejected as error:
            rejected[name] = error
    assert rejected == {}
    await cluster.api.create(pod("another"))
    found = await cluster.api.request("GET", pod_path(pod("another")))
    await writer.delete(PodRef("default", "another", found["metadata"]["uid"]), 0)


async def test_a_cost_of_deletion_is_written_where_there_is_none_or_ours_and_nowhere_else(
    cluster: Cluster, held: Held
) -> None:
    writer = Writer(held.session.writes, "placement-extender", "one")
    for cost in ("-1", "-2", None, "-3"):
        await writer.set_deletion_cost(held.ref, cost)
    theirs = {"metadata": {"annotations": {DELETION_COST: "7"}}}
    await cluster.api.request("PATCH", pod_path(WEB), theirs, content_type=MERGE)
    for cost in ("-4", None):
        with pytest.raises(Rejected, match="pod-deletion-cost that no other client"):
            await writer.set_deletion_cost(held.ref, cost)


async def test_a_release_passes_and_keeps_the_gate_of_another_controller(held: Held) -> None:
    body = {
        "metadata": {"uid": held.ref.uid, "annotations": {RELEASED_ANNOTATION: "team-7@2026-11-20T12:00:00Z"}},
        "spec": {"schedulingGates": [{"$patch": "delete", "name": RELEASE_GATE}], "nodeSelector": {"zone": "a"}},
    }
    found = await held.api.request("PATCH", pod_path(WEB), body, content_type=STRATEGIC)
    assert found["spec"]["schedulingGates"] == [{"name": "example.com/quota"}]
    assert found["spec"]["nodeSelector"] == {"pool": "a", "zone": "a"}


async def test_a_release_into_a_set_of_domains_passes(held: Held) -> None:
    body = {
        "metadata": {"uid": held.ref.uid},
        "spec": {"schedulingGates": [{"$patch": "delete", "name": RELEASE_GATE}], "affinity": IN_A_OR_B},
    }
    found = await held.api.request("PATCH", pod_path(WEB), body, content_type=STRATEGIC)
    assert found["spec"]["affinity"] == IN_A_OR_B


async def test_a_release_brings_tolerations_of_its_domain(held: Held) -> None:
    spot = {"key": "spot", "operator": "Exists", "effect": "NoSchedule"}
    body = {"metadata": {"uid": held.ref.uid}, "spec": RELEASE["spec"] | {"tolerations": [*TOLERATED, spot]}}
    found = await held.api.request("PATCH", pod_path(WEB), body, content_type=MERGE)
    assert found["spec"]["tolerations"] == [*TOLERATED, spot]


# -- what it does not ---------------------------------------------------------------------------------------------


async def test_every_other_write_to_a_pod_is_rejected_by_the_policy(held: Held) -> None:
    said = {name: await rejection(held.api, *call) for name, call in CALLS.items()}
    assert {name: text for name, text in said.items() if "ValidatingAdmissionPolicy" not in text} == {}
    assert {name: text for name, text in said.items() if "expression" in text} == {}, (
        "refused for an error, not a reason"
    )


async def test_a_pod_that_nothing_can_preempt_is_not_deleted_even_with_its_uid(cluster: Cluster, held: Held) -> None:
    critical = pod("critical", on="node-a", priorityClassName="system-node-critical")
    mirror = pod("mirror", on="node-a")
    mirror["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "x"}
    important = pod("important", on="node-a", priorityClassName="system-cluster-critical")
    await cluster.api.create(critical, mirror, important)
    for victim, is_refused in ((critical, True), (mirror, True), (important, False)):
        found = await cluster.api.request("GET", pod_path(victim))
        options = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": found["metadata"]["uid"]}}
        said = await rejection(held.api, "DELETE", pod_path(victim), options)
        assert ("no pod can be preempted" in said) == is_refused, said


async def test_no_other_account_is_held_and_the_account_is_held_on_pods_only(cluster: Cluster, held: Held) -> None:
    as_before = {name: call for name, call in CALLS.items() if name.startswith("write a label")}
    assert {name: await rejection(cluster.api, *call) for name, call in as_before.items()} == dict.fromkeys(
        as_before, ""
    )
    event = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "web"}}
    assert await rejection(held.api, "POST", "/api/v1/namespaces/default/configmaps", event) == ""
