"""Policies end to end in this process: the embedded API server, its webhooks, and the service as `serve` builds it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import aiohttp
import pytest

from extender.certificates.authority import Authority
from extender.compose.embedded import FREE_PORT, StartError, service_running
from extender.model.policies import GROUP
from extender.settings.configuration import DEFAULT_NAMESPACE
from extender.simulator.apiserver.api_errors import ApiError
from extender.simulator.apiserver.fault_points import Call, Faults
from extender.simulator.apiserver.kinds import (
    EVENTS,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    NODES,
    POLICY_KINDS,
    SECRETS,
)
from extender.simulator.apiserver.kinds import PODS as KIND_OF_PODS
from extender.simulator.apiserver.server import ApiServer
from extender.simulator.json_objects import JsonObject
from extender.simulator.scenario.faults import FaultInjector, WebhookDown
from extender.telemetry.metrics import read_page
from tests.builders import REQUIRED, extender_args, node_json, requirement, settings
from tests.compose.admission import POLICIES, SERVICE, Cluster, enabled, installed, running
from tests.deploy.policies.examples import policy
from tests.e2e.programs import free_ports
from tests.fakes import PATIENCE, until
from tests.simulator.plain import namespace, pod
from tests.verbs.admit.reviewing import review

KIND_OF_POLICIES = next(each for each in POLICY_KINDS if each.kind == "PodSchedulingPolicy" and each.group == GROUP)


OURS = policy("PodSchedulingPolicy", schedulerName="ours")


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    """A cluster with policies."""
    async with running(enabled()) as found:
        yield found


async def test_a_pod_gets_what_a_policy_directs(cluster: Cluster) -> None:
    terms = [{"matchExpressions": [requirement("pool", "In", ["db"])]}]
    affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}
    tolerations = [{"key": "db", "operator": "Exists"}]
    found = policy("PodSchedulingPolicy", affinity=affinity, schedulerName="ours", tolerations=tolerations)
    assert (await cluster.apply(found))[0] == 201
    made = await cluster.create("one")
    assert made["spec"]["affinity"] == affinity
    assert made["spec"]["schedulerName"] == "ours", "the API server's own default counts as unset"
    assert {"key": "db", "operator": "Exists"} in made["spec"]["tolerations"]
    assert "placement.extender.dev/injected" in made["metadata"]["annotations"]


async def test_what_became_of_each_policy_is_counted_by_its_kind(cluster: Cluster) -> None:
    await cluster.apply(policy("PodSchedulingPolicy", "sets", schedulerName="ours"))
    await cluster.apply(policy("PodSchedulingPolicy", "disagrees", schedulerName="another", priority=-1))
    await cluster.apply(policy("PodSchedulingPolicy", "agrees", schedulerName="ours", priority=-2))
    await cluster.create("one")
    counts = {
        labels["result"]: value
        for name, labels, value in read_page(cluster.service.metrics.render().decode())
        if name == "extender_policy_applications_total" and labels["kind"] == "PodSchedulingPolicy"
    }
    assert counts == {"applied": 1, "conflict": 1, "unchanged": 1, "failed": 0}


async def test_a_review_is_decided_before_the_second_of_another_namespace(cluster: Cluster) -> None:
    """Fifty pods of a tenant are reviewed when one of another comes, and what the loop does meanwhile waits for one of them."""
    decide, order = cluster.admission.service.decide, []

    async def decided(home: str) -> None:
        answer = await decide(review(pod("one", home), namespace=home))
        order.append(home)
        assert answer["response"]["allowed"]

    await asyncio.gather(*(decided("hostile") for _ in range(50)), decided("honest"))
    assert order.index("honest") <= 1
    assert len(order) == 51


async def test_the_name_of_a_namespace_that_no_api_server_sends_is_not_kept(cluster: Cluster) -> None:
    for name in ("n" * 10**6, 5, None, ["a"]):
        answer = await cluster.admission.service.decide(review(pod("one"), namespace=name))
        assert answer["response"]["uid"] == "u-1"


async def test_a_pod_that_no_policy_selects_is_stored_as_it_was_sent(cluster: Cluster) -> None:
    await cluster.apply(policy("PodSchedulingPolicy", podSelector={"matchLabels": {"app": "other"}}, nodeName="n"))
    made = await cluster.create("one")
    assert "nodeName" not in made["spec"]
    assert not made["metadata"].get("annotations")
    assert cluster.api.admission.calls["mutate.policies.placement.extender.dev", "answered"] == 1


async def test_a_bad_policy_is_rejected_with_its_field_and_a_good_one_is_not(cluster: Cluster) -> None:
    code, answer = await cluster.apply(policy("PodSchedulingPolicy", tolerations=[{"key": "a", "operator": "Is"}]))
    assert (code, answer["reason"]) == (422, "Invalid")
    assert "spec.tolerations[0].operator" in answer["message"]
    code, _ = await cluster.apply(policy("PodSchedulingPolicy", tolerations=[{"key": "a", "operator": "Exists"}]))
    assert code == 201


async def test_the_first_pods_of_a_new_namespace_get_what_its_labels_direct(cluster: Cluster) -> None:
    """The watch has not shown it: it is read."""
    every = "/apis/placement.extender.dev/v1alpha1/clusterpodschedulingpolicies"
    tenants = policy(namespaceSelector={"matchLabels": {"tenant": "yes"}}, podSelector={}, schedulerName="ours")
    await cluster.client.post(every, tenants)
    index = cluster.service.index
    cluster.api.operations.create(NAMESPACES, namespace("new", tenant="yes"))
    await until(lambda: len(index.policies) and index.namespaces.labels("new") is not None)
    index.delete(index.namespaces.objects["new"])
    code, made = await cluster.client.post("/api/v1/namespaces/new/pods", pod("one", "new"))
    assert (code, made["spec"]["schedulerName"]) == (201, "ours")
    assert index.namespaces.labels("new") is None


async def test_exempt_namespaces_are_not_even_requested(cluster: Cluster) -> None:
    await cluster.client.post(
        "/apis/placement.extender.dev/v1alpha1/clusterpodschedulingpolicies",
        policy(namespaceSelector={}, podSelector={}, schedulerName="ours"),
    )
    code, made = await cluster.client.post(
        f"/api/v1/namespaces/{DEFAULT_NAMESPACE}/pods", pod("one", DEFAULT_NAMESPACE)
    )
    assert (code, made["spec"]["schedulerName"]) == (201, "default-scheduler")
    assert ("mutate.policies.placement.extender.dev", "answered") not in cluster.api.admission.calls


async def test_a_removed_webhook_or_bundle_is_put_back(cluster: Cluster) -> None:
    cluster.api.operations.change(MUTATING_WEBHOOKS, "placement-extender", lambda obj: obj.update(webhooks=[]))
    await cluster.admission.keeper.step()
    await cluster.apply(OURS)
    assert await cluster.scheduler_of("one") == "ours"


async def test_pods_pass_while_the_webhook_is_down_and_the_failures_are_counted(cluster: Cluster) -> None:
    await cluster.apply(OURS)
    cluster.api.faults = faults = FaultInjector(Random(7))
    faults.change([WebhookDown(probability=0.3)])
    names = [await cluster.scheduler_of(f"p{number}") for number in range(30)]
    assert names.count("default-scheduler") == cluster.api.admission.failed_open > 0
    assert names.count("ours") == 30 - cluster.api.admission.failed_open


async def test_creations_go_on_while_the_certificate_is_exchanged(cluster: Cluster) -> None:
    """The old and the new certificate are trusted all the while: with failurePolicy Fail none is lost."""
    cluster.api.operations.change(
        MUTATING_WEBHOOKS, "placement-extender", lambda obj: obj["webhooks"][0].update(failurePolicy="Fail")
    )
    await cluster.apply(OURS)

    async def creations(first: int) -> None:
        for number in range(first, first + 10):
            assert await cluster.scheduler_of(f"p{number}") == "ours"

    secret = await cluster.client.get(f"/api/v1/namespaces/{DEFAULT_NAMESPACE}/secrets/{SERVICE}")
    before = secret[1]["data"]["tls.crt"]
    await asyncio.gather(*(creations(number) for number in (0, 10, 20)), cluster.admission.keeper.step())
    secret[1]["data"] = {name: value for name, value in secret[1]["data"].items() if name == "ca.crt"}
    cluster.api.operations.change(
        SECRETS, f"{DEFAULT_NAMESPACE}/{SERVICE}", lambda obj: obj.update(data=secret[1]["data"])
    )
    await (
        cluster.admission.keeper.step()
    )  # without a certificate a new one is made, and trusted beside the old authority
    after = (await cluster.client.get(f"/api/v1/namespaces/{DEFAULT_NAMESPACE}/secrets/{SERVICE}"))[1]
    assert after["data"]["tls.crt"] != before
    await asyncio.gather(*(creations(number) for number in (30, 40, 50)))
    assert cluster.api.admission.failed_open == 0


async def test_kupids_policies_are_applied_where_they_are_read() -> None:
    async with running(enabled(kupid=True)) as cluster:
        (kind,) = [each for each in POLICY_KINDS if each.group.startswith("kupid") and each.namespaced]
        found = policy("PodSchedulingPolicy", nodeSelector={"pool": "db"}) | {"apiVersion": kind.api_version}
        path = f"/apis/{kind.api_version}/namespaces/default/{kind.plural}"
        assert (await cluster.client.post(path, found))[0] == 201
        await until(lambda: len(cluster.service.index.policies) == 1)
        assert (await cluster.create("one"))["spec"]["nodeSelector"] == {"pool": "db"}


async def test_a_standby_admits_while_its_scheduler_port_is_not_ready() -> None:
    async with running(enabled()) as cluster:
        cluster.service.readiness.block("test", "stands by")
        assert not cluster.service.readiness.is_ready
        await cluster.apply(OURS)
        assert await cluster.scheduler_of("one") == "ours"


async def test_readiness_waits_for_policies_and_for_a_certificate(cluster: Cluster) -> None:
    checks = cluster.admission.readiness.checks()
    assert set(checks) == {"namespaces", "podschedulingpolicies", "clusterpodschedulingpolicies", "webhook certificate"}
    url = cluster.admission.url
    connector = aiohttp.TCPConnector(ssl=False)
    async with aiohttp.ClientSession(url, connector=connector) as session, session.get("/readyz") as answer:
        assert (answer.status, await answer.text()) == (200, "ok")


async def test_a_pod_that_another_replica_has_admitted_counts_as_an_application_of_its_policies() -> None:
    async with running(enabled()) as cluster:
        await cluster.apply(OURS)
        made = pod("one", labels={"app": "db"})
        record = {"": {"policies": [{"policy": "PodSchedulingPolicy/default/one"}]}}
        made["metadata"]["annotations"] = {"placement.extender.dev/injected": json.dumps(record)}
        cluster.api.operations.create(KIND_OF_PODS, made)
        async with asyncio.timeout(PATIENCE):
            while not (await cluster.client.get(f"{POLICIES}/one"))[1].get("status", {}).get("lastApplied"):  # noqa: ASYNC110 -- no event across the wire
                await asyncio.sleep(0.05)


class WithoutCrds(Faults):
    """No kind of ours is served until ``are_installed``."""

    are_installed = False

    async def before_answer(self, call: Call) -> None:
        """404, as for a resource that the API server does not know."""
        if not self.are_installed and call.path.startswith("/apis/placement.extender.dev/"):
            raise ApiError(404, "NotFound", "the server could not find the requested resource")


async def test_without_crds_the_service_is_ready_without_policies_and_applies_them_once_they_are_there() -> None:
    faults = WithoutCrds()
    async with running(enabled(), faults) as cluster:
        assert cluster.service.readiness.is_ready
        metrics = cluster.service.metrics.render().decode()
        assert 'extender_kind_not_served{resource="podschedulingpolicies"} 1.0' in metrics
        assert 'extender_kind_not_served{resource="pods"} 0.0' in metrics
        assert await cluster.scheduler_of("one") == "default-scheduler"
        faults.are_installed = True
        assert (await cluster.apply(OURS))[0] == 201
        assert await cluster.scheduler_of("two") == "ours"
        metrics = cluster.service.metrics.render().decode()
        assert 'extender_kind_not_served{resource="podschedulingpolicies"} 0.0' in metrics


async def test_an_address_that_is_taken_is_named_by_its_setting(cluster: Cluster) -> None:
    taken = cluster.admission.url.removeprefix("https://")
    with pytest.raises(StartError, match=f"policies.webhook.bindAddress {taken}: "):
        async with service_running(enabled(webhook={"bindAddress": taken}), cluster.api.url, seed=2):
            pytest.fail("two webhooks listen on one port")


async def test_a_webhook_with_a_url_is_reached_without_a_service() -> None:
    """As beside each API server in the sidecar layout; the certificate is for the host of the URL."""
    (port,) = free_ports(1)
    webhook = {"bindAddress": f"127.0.0.1:{port}", "url": f"https://127.0.0.1:{port}"}
    async with running(enabled(webhook=webhook)) as cluster:
        cluster.api.admission.services.clear()
        await cluster.apply(OURS)
        assert await cluster.scheduler_of("one") == "ours"
        (found,) = cluster.api.store.find(MUTATING_WEBHOOKS, "placement-extender").read()["webhooks"]
        assert "service" not in found["clientConfig"]


async def test_without_policies_no_port_is_opened_and_nothing_is_watched() -> None:
    async with ApiServer() as api:
        installed(api)
        given = settings(server={"bindAddress": FREE_PORT}, preemption={"mode": "off"})
        async with service_running(given, api.url, seed=1) as (_, service):
            assert service.admission is None


async def test_the_leader_writes_the_status_of_a_policy() -> None:
    async with running(enabled()) as cluster:
        await cluster.apply(OURS)
        await cluster.create("one")
        path = f"{POLICIES}/one"
        async with asyncio.timeout(PATIENCE):
            while (found := (await cluster.client.get(path))[1].get("status", {})).get("matchedPods") != 1:  # noqa: ASYNC110 -- no event across the wire
                await asyncio.sleep(0.05)
            while not cluster.api.store.table(EVENTS).objects:  # noqa: ASYNC110 -- as above
                await asyncio.sleep(0.05)
        assert [(each["type"], each["status"]) for each in found["conditions"]] == [
            ("Valid", "True"),
            ("Conflicting", "False"),
        ]
        assert found["lastApplied"]
        metrics = cluster.service.metrics.render().decode()
        assert 'extender_policy_status_writes_total{result="failed"} 0.0' in metrics
        (event,) = [stored.read() for stored in cluster.api.store.table(EVENTS).latest()]
        uid = (await cluster.client.get(path))[1]["metadata"]["uid"]
        assert (event["reason"], event["regarding"]["name"], event["regarding"]["uid"]) == ("Applied", "one", uid)
        assert 'extender_policy_events_total{result="failed"} 0.0' in metrics


@pytest.mark.parametrize("is_authenticated", [False, True])
async def test_a_review_reaches_the_status_of_a_policy_only_from_a_known_client(
    tmp_path: Path, *, is_authenticated: bool
) -> None:
    """Without a client CA anyone who reaches the port could put texts into it."""
    ca = tmp_path / "clients.crt"
    ca.write_bytes(Authority.make("clients", datetime.now(UTC), 1).pair.certificate_pem)
    async with running(enabled(webhook={"clientCAFile": str(ca)} if is_authenticated else {})) as cluster:
        found = policy("PodSchedulingPolicy", nodeSelector={"pool": "a"})
        cluster.api.operations.create(
            KIND_OF_POLICIES, found
        )  # not over its API, which shows the webhook no certificate
        await until(lambda: len(cluster.service.index.policies) == 1)
        forged = pod("one", labels={"app": "db"})
        forged["spec"]["nodeSelector"] = {"pool": "forged"}
        await cluster.admission.service.decide(review(forged, namespace="default"))
        await cluster.admission.status.round()
        status = (await cluster.client.get(f"{POLICIES}/one"))[1]["status"]
        assert ("forged" in json.dumps(status), "lastApplied" in status) == (is_authenticated, False)


async def test_a_pod_that_admission_missed_has_an_event(cluster: Cluster) -> None:
    """It is older than the policy."""
    made = await cluster.create("old")
    await cluster.apply(policy("PodSchedulingPolicy", nodeSelector={"disk": "ssd"}))
    cluster.api.operations.create(NODES, node_json("n1"))
    index = cluster.service.index
    await until(lambda: "n1" in index.view.known and made["metadata"]["uid"] in index.pods)
    for _ in range(2):
        assert list((await cluster.service.verbs.filter(extender_args(made, "n1"))).passed) == []

    def events() -> list[JsonObject]:
        found = [stored.read() for stored in cluster.api.store.table(EVENTS).latest()]
        return [each for each in found if each["reason"] == "PolicyMissedAdmission"]

    await until(events)
    (event,) = events()
    assert (event["type"], event["regarding"]["uid"]) == ("Warning", made["metadata"]["uid"])
    assert "PodSchedulingPolicy/default/" in event["note"]
    assert 'extender_missed_admission_events_total{result="written"} 1.0' in cluster.service.metrics.render().decode()
