"""LIST as the real API server answers it: versions, pages, selectors, and the errors in its words."""

import json
from base64 import urlsafe_b64decode

from extender.simulator.apiserver.api_errors import CONTINUE_EXPIRED
from extender.simulator.apiserver.kinds import NAMESPACES as NAMESPACE_KIND
from extender.simulator.apiserver.kinds import PODS as POD_KIND
from extender.simulator.apiserver.server import ApiServer
from tests.simulator.client import NODES, PODS, Client, names
from tests.simulator.plain import namespace, node, pod


def _fill(api: ApiServer, count: int) -> None:
    for number in range(count):
        api.operations.create(POD_KIND, pod(f"p{number}"))


async def test_items_come_without_kind_and_the_list_with_it(client: Client, api: ApiServer) -> None:
    api.store.load([node("n1", "z1")])
    code, body = await client.get(NODES)
    assert (code, body["kind"], body["apiVersion"]) == (200, "NodeList", "v1")
    assert body["metadata"] == {"resourceVersion": str(api.store.version)}
    assert names(body["items"]) == ["n1"]
    assert "kind" not in body["items"][0]


async def test_an_empty_list_has_items(client: Client) -> None:
    _, body = await client.get(NODES)
    assert body["items"] == []


async def test_pages_show_one_version_while_the_cluster_moves_on(client: Client, api: ApiServer) -> None:
    _fill(api, 5)
    _, first = await client.get(PODS, limit=2)
    api.operations.create(POD_KIND, pod("p11"))
    api.store.remove(POD_KIND, "default/p3")
    _, second = await client.get(PODS, limit=2, **{"continue": first["metadata"]["continue"]})
    _, third = await client.get(PODS, limit=2, **{"continue": second["metadata"]["continue"]})
    assert names(first["items"]) + names(second["items"]) + names(third["items"]) == ["p0", "p1", "p2", "p3", "p4"]
    assert first["metadata"]["remainingItemCount"] == 3
    assert "continue" not in third["metadata"]
    assert {page["metadata"]["resourceVersion"] for page in (first, second, third)} == {
        first["metadata"]["resourceVersion"]
    }


async def test_the_continue_token_reads_like_the_real_one(client: Client, api: ApiServer) -> None:
    _fill(api, 2)
    _, page = await client.get(PODS, limit=1)
    token = page["metadata"]["continue"]
    raw = json.loads(urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    assert raw == {"v": "meta.k8s.io/v1", "rv": api.store.version, "start": "/default/p0\0"}


async def test_an_old_continue_token_gets_410_and_a_token_to_go_on_with(client: Client, api: ApiServer) -> None:
    _fill(api, 4)
    _, page = await client.get(PODS, limit=2)
    api.operations.create(POD_KIND, pod("p9"))
    api.store.compact()
    code, deleted = await client.get(PODS, limit=2, **{"continue": page["metadata"]["continue"]})
    assert (code, deleted["reason"], deleted["message"]) == (410, "Expired", CONTINUE_EXPIRED)
    _, rest = await client.get(PODS, **{"continue": deleted["metadata"]["continue"]})
    assert names(rest["items"]) == ["p2", "p3", "p9"]


async def test_a_version_to_come_gets_504(client: Client, api: ApiServer) -> None:
    code, body = await client.get(PODS, resourceVersion=99999999, resourceVersionMatch="NotOlderThan")
    assert (code, body) == (
        504,
        {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": f"Timeout: Too large resource version: 99999999, current: {api.store.version}",
            "reason": "Timeout",
            "details": {
                "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
                "retryAfterSeconds": 1,
            },
            "code": 504,
        },
    )


async def test_an_exact_version_shows_the_past_until_it_is_compacted(client: Client, api: ApiServer) -> None:
    _fill(api, 2)
    then = api.store.version
    api.store.remove(POD_KIND, "default/p0")
    query = {"resourceVersion": then, "resourceVersionMatch": "Exact"}
    _, before = await client.get(PODS, **query)
    assert (names(before["items"]), before["metadata"]["resourceVersion"]) == (["p0", "p1"], str(then))
    api.store.compact()
    code, deleted = await client.get(PODS, **query)
    assert (code, deleted["message"]) == (410, "The resourceVersion for the provided list is too old.")


async def test_version_0_is_answered_from_the_cache_without_pages(client: Client, api: ApiServer) -> None:
    _fill(api, 3)
    _, body = await client.get(PODS, resourceVersion=0, limit=1)
    assert (names(body["items"]), body["metadata"]) == (["p0", "p1", "p2"], {"resourceVersion": str(api.store.version)})


async def test_a_malformed_version_gets_500_as_from_the_real_server(client: Client) -> None:
    code, body = await client.get(PODS, resourceVersion="abc")
    message = 'resourceVersion: Invalid value: "abc": strconv.ParseUint: parsing "abc": invalid syntax'
    assert (code, body["message"], "reason" in body) == (500, message, False)


async def test_a_match_without_a_version_is_rejected(client: Client) -> None:
    code, body = await client.get(PODS, resourceVersionMatch="Exact")
    assert (code, body["reason"]) == (422, "Invalid")


async def test_selectors_and_namespaces_narrow_a_list(client: Client, api: ApiServer) -> None:
    api.operations.create(NAMESPACE_KIND, namespace("other"))
    api.operations.create(POD_KIND, pod("a", labels={"app": "web"}))
    api.operations.create(POD_KIND, pod("b", on="n1", labels={"app": "db"}))
    api.operations.create(POD_KIND, pod("c", "other"))
    assert names((await client.get(PODS, labelSelector="app=web"))[1]["items"]) == ["a"]
    assert names((await client.get(PODS, labelSelector="app,app!=web"))[1]["items"]) == ["b"]
    assert names((await client.get(PODS, labelSelector="app in (web, other),app"))[1]["items"]) == ["a"]
    assert "a" not in names((await client.get(PODS, labelSelector="app notin (web)"))[1]["items"])
    assert names((await client.get(PODS, fieldSelector="spec.nodeName="))[1]["items"]) == ["a", "c"]
    assert names((await client.get(PODS, fieldSelector="metadata.name=b"))[1]["items"]) == ["b"]
    assert names((await client.get("/api/v1/namespaces/other/pods"))[1]["items"]) == ["c"]
    assert (await client.get(PODS, fieldSelector="spec.image=x"))[0] == 400


async def test_pages_of_a_selection_do_not_tell_how_much_is_left(client: Client, api: ApiServer) -> None:
    _fill(api, 4)
    _, page = await client.get(PODS, limit=1, fieldSelector="spec.nodeName=")
    assert "remainingItemCount" not in page["metadata"]
    assert page["metadata"]["continue"]


async def test_metadata_only_lists_hold_nothing_else(client: Client, api: ApiServer) -> None:
    _fill(api, 1)
    accept = {"Accept": "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"}
    _, body = await client.request("GET", PODS, headers=accept)
    assert (body["kind"], set(body["items"][0])) == ("PartialObjectMetadataList", {"metadata"})


async def test_a_long_list_is_streamed_whole(client: Client, api: ApiServer) -> None:
    api.store.load(pod(f"p{number:05}", on="n1") for number in range(2_500))
    _, body = await client.get(PODS)
    assert names(body["items"]) == [f"p{number:05}" for number in range(2_500)]


async def test_what_is_no_resource_is_not_found(client: Client) -> None:
    assert (await client.get("/api/v1/widgets"))[0] == 404
    assert (await client.get("/apis/apps/v1/replicasets"))[0] == 200
    assert (await client.get(f"{NODES}/n7"))[1]["message"] == 'nodes "n7" not found'


async def test_health_and_version_answer(client: Client) -> None:
    assert [(await client.get(path))[1] for path in ("/livez", "/readyz")] == ["ok", "ok"]
    assert (await client.get("/version"))[1]["minor"] == "36"
