"""Server-side apply: YAML, lists of built-in kinds, empty objects; more is in tests/conformance."""

from __future__ import annotations

from typing import Any

from tests.kit.devcluster.api import CONFIG_MAPS, PODS, Api, config_map, pod

A = f"{CONFIG_MAPS}/a"


async def test_yaml_is_applied_too(api: Api) -> None:
    raw = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  when: 2026-01-01\n  sign: =\n"
    reply = await api.call("PATCH", A, raw, "application/apply-patch+yaml", fieldManager="me")
    assert (reply.code, reply.body["data"]) == (201, {"when": "2026-01-01", "sign": "="})


async def test_containers_and_ports_of_built_ins_merge_by_key(api: Api) -> None:
    path = f"{PODS}/p"
    ports = [{"containerPort": 80}, {"containerPort": 81, "protocol": "UDP"}]
    await api.apply(path, pod("p", containers=[{"name": "main", "image": "a", "ports": ports}]))
    reply = await api.apply(path, pod("p", containers=[{"name": "main", "image": "b", "ports": ports}]))
    assert reply.code == 200, reply.body
    container = reply.body["spec"]["containers"][0]
    assert (container["image"], len(container["ports"])) == ("b", 2)
    assert reply.body["metadata"]["managedFields"][0]["operation"] == "Apply"


async def test_an_empty_object_gains_members_and_loses_them(api: Api) -> None:
    volumes: list[dict[str, Any]] = [{"name": "v", "emptyDir": {}}]
    path = "/apis/apps/v1/namespaces/default/deployments/d"
    template = {
        "metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "main", "image": "a"}], "volumes": volumes},
    }
    body = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d"},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template},
    }
    await api.apply(path, body)
    volumes[0]["emptyDir"] = {"medium": "Memory"}
    grown = await api.apply(path, body)
    assert grown.body["spec"]["template"]["spec"]["volumes"] == [
        {"name": "v", "emptyDir": {"medium": "Memory"}}
    ]
    volumes[0]["emptyDir"] = {}
    shrunk = await api.apply(path, body)
    assert shrunk.body["spec"]["template"]["spec"]["volumes"] == [{"name": "v", "emptyDir": {}}]


async def test_written_managed_fields_are_believed(api: Api) -> None:
    created = (await api.post(CONFIG_MAPS, config_map("a", x="1"), fieldManager="old")).body
    entries = created["metadata"]["managedFields"]
    entries[0] |= {"manager": "new", "operation": "Apply"}
    operations = [{"op": "replace", "path": "/metadata/managedFields", "value": entries}]
    reply = await api.patch(A, operations, "json")
    book = reply.body["metadata"]["managedFields"]
    assert [(each["manager"], each["operation"]) for each in book] == [("new", "Apply")]
    reply = await api.apply(A, config_map("a", y="1"), manager="new")
    assert reply.body["data"] == {"y": "1"}
