"""Server-side apply: ownership, conflicts, what is removed when it is no longer said."""

from __future__ import annotations

from typing import Any

from tests.kit.devcluster.api import CONFIG_MAPS, PODS, THINGS, Api, config_map, pod, thing

ONE = f"{THINGS}/one"
A = f"{CONFIG_MAPS}/a"


def owned(body: dict[str, Any]) -> dict[tuple[str, str, str], Any]:
    """(manager, operation, subresource) → fields."""
    return {
        (entry["manager"], entry["operation"], entry.get("subresource", "")): entry["fieldsV1"]
        for entry in body["metadata"].get("managedFields", ())
    }


async def test_apply_creates_and_owns_what_it_says_not_what_is_defaulted(things: Api) -> None:
    reply = await things.apply(ONE, thing(replicas=1, parts=[{"name": "x", "size": 1}]))
    assert reply.code == 201
    assert reply.body["spec"]["mode"] == "fast"
    assert owned(reply.body) == {
        ("me", "Apply", ""): {
            "f:spec": {"f:replicas": {}, "f:parts": {'k:{"name":"x"}': {".": {}, "f:name": {}, "f:size": {}}}}
        }
    }


async def test_a_changed_field_of_another_manager_is_a_conflict_that_names_it(things: Api) -> None:
    await things.apply(ONE, thing(replicas=1, labels={"a": "1"}), manager="first")
    reply = await things.apply(ONE, thing(replicas=2, labels={"b": "1"}), manager="second")
    assert (reply.code, reply.reason) == (409, "Conflict")
    assert reply.message == 'Apply failed with 1 conflict: conflict with "first": .spec.replicas'
    assert reply.body["details"]["causes"] == [
        {"reason": "FieldManagerConflict", "message": 'conflict with "first"', "field": ".spec.replicas"}
    ]


async def test_the_same_value_is_shared_and_force_takes_over(things: Api) -> None:
    await things.apply(ONE, thing(replicas=1), manager="first")
    shared = await things.apply(ONE, thing(replicas=1), manager="second")
    assert {manager for manager, _, _ in owned(shared.body)} == {"first", "second"}
    forced = await things.apply(ONE, thing(replicas=2), manager="second", force="true")
    assert (forced.body["spec"]["replicas"], set(owned(forced.body))) == (2, {("second", "Apply", "")})


async def test_what_is_no_longer_said_is_removed_unless_another_says_it(things: Api) -> None:
    await things.apply(ONE, thing(replicas=1, labels={"a": "1", "b": "1"}, tags=["x", "y"]), manager="first")
    await things.apply(ONE, thing(replicas=1, labels={"b": "1"}), manager="second")
    reply = await things.apply(ONE, thing(replicas=1, tags=["y"]), manager="first")
    assert (reply.body["spec"]["labels"], reply.body["spec"]["tags"]) == ({"b": "1"}, ["y"])
    reply = await things.apply(ONE, thing(replicas=1), manager="second")
    assert "labels" not in reply.body["spec"]


async def test_list_maps_merge_by_key(things: Api) -> None:
    await things.apply(ONE, thing(replicas=1, parts=[{"name": "x", "size": 1}]), manager="first")
    reply = await things.apply(
        ONE, thing(replicas=1, parts=[{"name": "y"}, {"name": "x", "color": "red"}]), manager="second"
    )
    assert reply.body["spec"]["parts"] == [{"name": "y"}, {"name": "x", "size": 1, "color": "red"}]
    reply = await things.apply(ONE, thing(replicas=1), manager="first")
    assert reply.body["spec"]["parts"] == [{"name": "y"}, {"name": "x", "color": "red"}]
    reply = await things.apply(ONE, thing(replicas=1), manager="second")
    assert "parts" not in reply.body["spec"]


async def test_other_writes_take_ownership_of_what_they_change(things: Api) -> None:
    await things.apply(ONE, thing(replicas=1, labels={"a": "1"}))
    scaled = await things.patch(f"{ONE}/scale", {"spec": {"replicas": 5}}, fieldManager="scaler")
    assert scaled.code == 200
    fields = owned((await things.get(ONE)).body)
    assert fields["scaler", "Update", "scale"] == {"f:spec": {"f:replicas": {}}}
    assert fields["me", "Apply", ""] == {"f:spec": {"f:labels": {"f:a": {}}}}
    reply = await things.apply(ONE, thing(replicas=1, labels={"a": "1"}))
    assert (
        'conflict with "scaler" with subresource "scale" using example.com/v1: .spec.replicas'
        in reply.message
    )


async def test_apply_to_status_leaves_the_spec_alone(things: Api) -> None:
    await things.apply(ONE, thing(replicas=1))
    status = {
        "apiVersion": "example.com/v1",
        "kind": "Thing",
        "metadata": {"name": "one"},
        "status": {"phase": "Good"},
    }
    reply = await things.apply(f"{ONE}/status", status, manager="controller")
    assert (reply.body["status"], reply.body["spec"]["replicas"]) == ({"phase": "Good"}, 1)
    assert owned(reply.body)["controller", "Apply", "status"] == {"f:status": {"f:phase": {}}}
    reply = await things.apply(f"{ONE}/status", status | {"status": {"steps": 1}}, manager="controller")
    assert reply.body["status"] == {"steps": 1}


async def test_a_uid_keeps_apply_from_resurrecting(things: Api) -> None:
    created = await things.apply(ONE, thing(replicas=1))
    body = thing(replicas=1)
    body["metadata"]["uid"] = created.body["metadata"]["uid"]
    assert (await things.apply(ONE, body)).code == 200
    await things.delete(ONE)
    reply = await things.apply(ONE, body)
    assert (reply.code, reply.reason) == (409, "Conflict")
    assert "uid mismatch" in reply.message
    await things.apply(ONE, thing(replicas=1))
    assert (await things.apply(ONE, body)).code == 422


async def test_apply_needs_a_manager_and_a_kind(api: Api) -> None:
    assert (await api.patch(A, config_map("a"), "apply")).code == 422
    assert (await api.apply(A, {"metadata": {"name": "a"}})).code == 400
    assert (await api.apply(A, config_map("other"))).code == 400


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
    assert set(owned(reply.body)) == {("new", "Apply", "")}
    reply = await api.apply(A, config_map("a", y="1"), manager="new")
    assert reply.body["data"] == {"y": "1"}
