"""Discovery, OpenAPI and logs: what clients ask before they ask for objects."""

from __future__ import annotations

from aiohttp import web

from tests.kit.devcluster.api import PODS, Api, pod


async def test_both_forms_of_discovery_name_the_same_resources(things: Api) -> None:
    plain = {
        (group["name"], resource["name"])
        for group in (await things.get("/apis")).body["groups"]
        for resource in (await things.get(f"/apis/{group['preferredVersion']['groupVersion']}")).body[
            "resources"
        ]
        if "/" not in resource["name"]
    }
    things.session.headers["Accept"] = (
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
    )
    async with things.session.get("/apis") as answer:
        assert (
            answer.headers["Content-Type"]
            == "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
        )
        groups = (await answer.json())["items"]
    aggregated = {
        (group["metadata"]["name"], resource["resource"])
        for group in groups
        for version in group["versions"]
        for resource in version["resources"]
    }
    assert aggregated == plain
    assert ("example.com", "things") in plain


async def test_core_resources_and_subresources_are_listed(api: Api) -> None:
    resources = {each["name"]: each for each in (await api.get("/api/v1")).body["resources"]}
    assert resources["pods"]["shortNames"] == ["po"]
    assert {
        "pods/status",
        "pods/log",
        "pods/binding",
        "pods/resize",
        "serviceaccounts/token",
    } <= resources.keys()
    assert resources["nodes"]["namespaced"] is False


async def test_openapi_documents_change_address_with_content(things: Api) -> None:
    index = (await things.get("/openapi/v3")).body["paths"]
    address = index["apis/example.com/v1"]["serverRelativeURL"]
    path, _, digest = address.partition("?hash=")
    document = (await things.get(path, hash=digest)).body
    schema = document["components"]["schemas"]["com.example.v1.Thing"]
    assert schema["properties"]["spec"]["description"] == "What it should be."
    operation = document["paths"]["/apis/example.com/v1/namespaces/{namespace}/things/{name}"]["patch"]
    assert "fieldValidation" in {parameter["name"] for parameter in operation["parameters"]}
    assert "application/strategic-merge-patch+json" not in operation["requestBody"]["content"]
    await things.delete("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.example.com")
    assert (await things.get(path)).code in (200, 404)
    pods = (await things.get("/openapi/v3/api/v1")).body["components"]["schemas"]["io.k8s.api.core.v1.Pod"]
    assert pods["properties"]["spec"] == {"$ref": "#/components/schemas/io.k8s.api.core.v1.PodSpec"}


async def test_logs_come_from_the_agent_of_the_node(api: Api) -> None:
    asked: list[tuple[str, dict[str, str]]] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append((request.path, dict(request.query)))
        return web.Response(text="one\ntwo\n")

    application = web.Application()
    application.router.add_get("/containerLogs/{rest:.*}", answer)
    runner = web.AppRunner(application, shutdown_timeout=0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    await api.post(
        "/api/v1/nodes", {"metadata": {"name": "n", "annotations": {"devcluster/kubelet-url": url}}}
    )
    await api.post(PODS, pod("p", nodeName="n"))
    reply = await api.get(f"{PODS}/p/log", tailLines="2", follow="true")
    assert (reply.code, reply.body) == (200, "one\ntwo\n")
    assert asked == [("/containerLogs/default/p/main", {"tailLines": "2", "follow": "true"})]
    await runner.cleanup()
    assert (await api.get(f"{PODS}/p/log")).code == 500


async def test_a_log_of_two_containers_is_that_of_neither(api: Api) -> None:
    two = [{"name": "a", "image": "i"}, {"name": "b", "image": "i"}]
    await api.post(PODS, pod("q", containers=two))
    assert "a container name must be specified" in (await api.get(f"{PODS}/q/log")).message
