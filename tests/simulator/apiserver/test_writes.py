"""Writes: creation, conflicts, patches, and which of them make an event."""

from extender.simulator.apiserver.kinds import PODS as POD_KIND
from extender.simulator.apiserver.patching import JSON, STRATEGIC
from extender.simulator.apiserver.server import ApiServer
from tests.simulator.client import NAMESPACES, NODES, Client
from tests.simulator.plain import namespace, node, pod, spread, term

DEFAULT = "/api/v1/namespaces/default/pods"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"


async def test_a_created_object_gets_its_identity_from_the_server(client: Client, api: ApiServer) -> None:
    code, made = await client.post(DEFAULT, pod("a"))
    metadata = made["metadata"]
    assert (code, made["kind"], metadata["resourceVersion"]) == (201, "Pod", str(api.store.version))
    assert (metadata["namespace"], metadata["generation"], len(metadata["uid"])) == ("default", 1, 36)
    assert metadata["creationTimestamp"].endswith("Z")
    assert (await client.get(f"{DEFAULT}/a"))[1] == made


async def test_a_created_pod_has_the_defaults_that_a_scheduler_reads(client: Client) -> None:
    _, made = await client.post(DEFAULT, pod("a"))
    assert made["status"]["phase"] == "Pending"
    assert (made["spec"]["priority"], made["spec"]["schedulerName"]) == (0, "default-scheduler")
    assert [toleration["key"] for toleration in made["spec"]["tolerations"]] == [
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    ]


async def test_a_priority_class_gives_its_value_to_pods(client: Client) -> None:
    await client.post("/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": "high"}, "value": 1000})
    _, made = await client.post(DEFAULT, pod("a", priorityClassName="high"))
    assert made["spec"]["priority"] == 1000
    assert (await client.post(DEFAULT, pod("b", priorityClassName="none")))[0] == 404


async def test_label_keys_are_merged_into_the_selectors_at_creation(client: Client) -> None:
    clause = {**term(app="web"), "matchLabelKeys": ["hash", "absent"], "mismatchLabelKeys": ["tenant"]}
    requested = pod(
        "a",
        labels={"hash": "x1", "tenant": "t1"},
        affinity={"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [clause]}},
        topologySpreadConstraints=[spread(labels={"app": "web"}, matchLabelKeys=["hash"])],
    )
    _, made = await client.post(DEFAULT, requested)
    merged = made["spec"]["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][0]
    assert merged["labelSelector"]["matchExpressions"] == [
        {"key": "hash", "operator": "In", "values": ["x1"]},
        {"key": "tenant", "operator": "NotIn", "values": ["t1"]},
    ]
    assert made["spec"]["topologySpreadConstraints"][0]["labelSelector"]["matchExpressions"] == [
        {"key": "hash", "operator": "In", "values": ["x1"]}
    ]


async def test_gated_pods_say_so(client: Client) -> None:
    _, made = await client.post(DEFAULT, pod("a", schedulingGates=[{"name": "hold"}]))
    assert made["status"]["conditions"][0]["reason"] == "SchedulingGated"


async def test_a_name_is_given_once(client: Client) -> None:
    await client.post(DEFAULT, pod("a"))
    code, body = await client.post(DEFAULT, pod("a"))
    assert (code, body["reason"], body["message"]) == (409, "AlreadyExists", 'pods "a" already exists')


async def test_generated_names_differ(client: Client) -> None:
    made = [(await client.post(DEFAULT, {"metadata": {"generateName": "web-"}, "spec": {}}))[1] for _ in range(2)]
    first, second = (body["metadata"]["name"] for body in made)
    assert first != second
    assert first.startswith("web-")


async def test_creation_needs_a_namespace_that_lives(client: Client) -> None:
    assert (await client.post("/api/v1/namespaces/nowhere/pods", pod("a", "nowhere")))[0] == 404


async def test_a_new_namespace_carries_its_name_as_a_label(client: Client) -> None:
    _, made = await client.post(NAMESPACES, namespace("team-a", team="a"))
    assert made["metadata"]["labels"] == {"kubernetes.io/metadata.name": "team-a", "team": "a"}
    assert made["status"] == {"phase": "Active"}


async def test_a_stale_put_conflicts_and_a_fresh_one_does_not(client: Client) -> None:
    _, made = await client.post(NODES, node("n1", "z1"))
    made["metadata"]["labels"]["tier"] = "front"
    code, changed = await client.request("PUT", f"{NODES}/n1", made)
    assert (code, changed["metadata"]["labels"]["tier"]) == (200, "front")
    code, body = await client.request("PUT", f"{NODES}/n1", {**made, "spec": {"unschedulable": True}})
    assert (code, body["reason"]) == (409, "Conflict")
    assert body["message"].endswith("please apply your changes to the latest version and try again")


async def test_a_lease_is_only_replaced_at_a_version(client: Client) -> None:
    _, lease = await client.post(LEASES, {"metadata": {"name": "leader"}, "spec": {"holderIdentity": "a"}})
    code, taken = await client.request("PUT", f"{LEASES}/leader", {**lease, "spec": {"holderIdentity": "b"}})
    assert (code, taken["spec"]["holderIdentity"]) == (200, "b")
    assert (await client.request("PUT", f"{LEASES}/leader", lease))[0] == 409
    assert (await client.request("PUT", f"{LEASES}/leader", {"metadata": {"name": "leader"}}))[0] == 422


async def test_a_put_or_patch_without_a_difference_makes_no_event(client: Client, api: ApiServer) -> None:
    _, made = await client.post(DEFAULT, pod("a", labels={"app": "web"}))
    version = api.store.version
    assert (await client.request("PUT", f"{DEFAULT}/a", made))[0] == 200
    assert (await client.patch(f"{DEFAULT}/a", {"metadata": {"labels": {"app": "web"}}}))[0] == 200
    assert api.store.version == version


async def test_a_merge_patch_sets_and_removes(client: Client) -> None:
    await client.post(DEFAULT, pod("a", labels={"app": "web", "old": "1"}))
    _, patched = await client.patch(f"{DEFAULT}/a", {"metadata": {"labels": {"old": None, "new": "2"}}})
    assert patched["metadata"]["labels"] == {"app": "web", "new": "2"}


async def test_a_strategic_patch_merges_conditions_by_type(client: Client) -> None:
    await client.post(DEFAULT, pod("a"))
    conditions = [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"},
        {"type": "DisruptionTarget", "status": "True"},
        {"type": "PodScheduled", "status": "True", "reason": None},
    ]
    for condition in conditions:
        await client.patch(f"{DEFAULT}/a/status", {"status": {"conditions": [condition]}}, STRATEGIC)
    _, patched = await client.get(f"{DEFAULT}/a")
    assert patched["status"]["conditions"] == [
        {"type": "PodScheduled", "status": "True"},
        {"type": "DisruptionTarget", "status": "True"},
    ]


async def test_a_json_patch_adds_tests_and_removes(client: Client) -> None:
    await client.post(DEFAULT, pod("a", schedulingGates=[{"name": "ours"}, {"name": "theirs"}]))
    steps = [
        {"op": "test", "path": "/spec/schedulingGates/0/name", "value": "ours"},
        {"op": "remove", "path": "/spec/schedulingGates/0"},
        {"op": "add", "path": "/metadata/labels/a~1b", "value": "c"},
    ]
    code, patched = await client.patch(f"{DEFAULT}/a", steps, JSON)
    assert (code, patched["spec"]["schedulingGates"], patched["metadata"]["labels"]) == (
        200,
        [{"name": "theirs"}],
        {"a/b": "c"},
    )
    assert patched["metadata"]["generation"] == 2
    assert (await client.patch(f"{DEFAULT}/a", steps, JSON))[0] == 422


async def test_a_patch_may_name_the_uid_or_version_it_was_made_for(client: Client) -> None:
    _, made = await client.post(DEFAULT, pod("a"))
    assert (await client.patch(f"{DEFAULT}/a", {"metadata": {"uid": "of-another"}}))[0] == 409
    old = {"metadata": {"resourceVersion": made["metadata"]["resourceVersion"], "labels": {"x": "1"}}}
    assert [(await client.patch(f"{DEFAULT}/a", old))[0] for _ in range(2)] == [200, 409]


async def test_status_and_spec_are_written_through_different_doors(client: Client) -> None:
    await client.post(DEFAULT, pod("a"))
    both = {"spec": {"activeDeadlineSeconds": 5}, "status": {"nominatedNodeName": "n1"}}
    _, through_status = await client.patch(f"{DEFAULT}/a/status", both)
    assert "activeDeadlineSeconds" not in through_status["spec"]
    assert through_status["status"]["nominatedNodeName"] == "n1"
    _, through_main = await client.patch(
        f"{DEFAULT}/a", {"spec": {"activeDeadlineSeconds": 6}, "status": {"nominatedNodeName": "n2"}}
    )
    assert (through_main["spec"]["activeDeadlineSeconds"], through_main["status"]["nominatedNodeName"]) == (6, "n1")


async def test_an_unknown_kind_of_patch_and_a_broken_body_are_rejected(client: Client) -> None:
    await client.post(DEFAULT, pod("a"))
    assert (await client.patch(f"{DEFAULT}/a", {}, "application/apply-patch+yaml"))[0] == 415
    async with client.session.post(DEFAULT, data=b"{") as response:
        assert response.status == 400


async def test_deleting_a_namespace_takes_what_is_in_it(client: Client, api: ApiServer) -> None:
    await client.post(DEFAULT, pod("a", on="n1"))
    code, _ = await client.request("DELETE", f"{NAMESPACES}/default")
    assert (code, api.store.table(POD_KIND).objects) == (200, {})
    assert (await client.get(f"{NAMESPACES}/default"))[0] == 404


async def test_access_reviews_allow(client: Client) -> None:
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    requested = {"spec": {"resourceAttributes": {"verb": "list", "resource": "pods"}}}
    code, review = await client.post(path, requested)
    assert (code, review["status"]["allowed"], review["spec"]) == (201, True, requested["spec"])


async def test_a_method_that_fits_no_resource_is_rejected(client: Client) -> None:
    assert (await client.request("DELETE", NODES))[0] == 405
    assert (await client.request("DELETE", f"{NODES}/n9"))[0] == 404
