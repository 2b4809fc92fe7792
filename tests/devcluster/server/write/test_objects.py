"""What holds for every kind: creation, updates, conflicts, generation, finalizers, deletion."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kit.devcluster.api import CONFIG_MAPS, PODS, THINGS, Api, config_map, pod, thing


async def test_a_new_object_gets_uid_version_and_time(api: Api) -> None:
    metadata = (await api.post(CONFIG_MAPS, config_map("a", x="1"))).body["metadata"]
    assert metadata["uid"]
    assert metadata["creationTimestamp"].endswith("Z")
    assert int(metadata["resourceVersion"]) > 1
    assert metadata["namespace"] == "default"


async def test_generate_name_makes_a_fresh_name_each_time(api: Api) -> None:
    body = {"metadata": {"generateName": "x-"}}
    names = [(await api.post(CONFIG_MAPS, body)).body["metadata"]["name"] for _ in range(3)]
    assert len(set(names)) == 3
    assert all(name.startswith("x-") and len(name) == 7 for name in names)


REFUSED: list[tuple[str, dict[str, Any], int, str, str]] = [
    (
        "no name",
        {"metadata": {}},
        422,
        "Invalid",
        "metadata.name: Required value: name or generateName is required",
    ),
    ("bad name", {"metadata": {"name": "A_b"}}, 422, "Invalid", "lowercase RFC 1123 subdomain"),
    (
        "bad label",
        {"metadata": {"name": "a", "labels": {"x": "b c"}}},
        422,
        "Invalid",
        "a valid label must be",
    ),
    (
        "bad key",
        {"metadata": {"name": "a", "labels": {"-": "b"}}},
        422,
        "Invalid",
        "name part must consist of",
    ),
    ("finalizer", {"metadata": {"name": "a", "finalizers": ["x"]}}, 422, "Invalid", "fully qualified"),
    ("other kind", {"kind": "Secret", "metadata": {"name": "a"}}, 400, "BadRequest", "Secret"),
    (
        "wrong type",
        {"metadata": {"name": "a"}, "data": {"x": 1}},
        400,
        "BadRequest",
        "cannot be handled as a ConfigMap",
    ),
    (
        "version",
        {"metadata": {"name": "a", "resourceVersion": "1"}},
        500,
        "",
        "resourceVersion should not be set",
    ),
    (
        "namespace",
        {"metadata": {"name": "a", "namespace": "b"}},
        400,
        "BadRequest",
        "does not match the namespace",
    ),
    (
        "owner",
        {"metadata": {"name": "a", "ownerReferences": [{"name": "x", "kind": "y", "apiVersion": "v1"}]}},
        422,
        "Invalid",
        'metadata.ownerReferences.uid: Invalid value: "": must not be empty',
    ),
]


@pytest.mark.parametrize(
    ("body", "code", "reason", "message"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED]
)
async def test_refused_creations_say_why(
    api: Api, body: dict[str, Any], code: int, reason: str, message: str
) -> None:
    reply = await api.post(CONFIG_MAPS, body)
    assert (reply.code, reply.reason) == (code, reason), reply.body
    assert message in reply.message


async def test_invalid_names_every_field_in_causes(api: Api) -> None:
    reply = await api.post(
        PODS, pod("x", containers=[{"name": "c"}, {"name": "c", "image": "i"}], restartPolicy="Maybe")
    )
    causes = {(cause["field"], cause["reason"]) for cause in reply.body["details"]["causes"]}
    assert causes == {
        ("spec.containers[0].image", "FieldValueRequired"),
        ("spec.containers[1].name", "FieldValueDuplicate"),
        ("spec.restartPolicy", "FieldValueNotSupported"),
    }
    assert reply.body["details"]["kind"] == "Pod"


async def test_a_taken_name_is_already_exists(api: Api) -> None:
    await api.post(CONFIG_MAPS, config_map("a"))
    reply = await api.post(CONFIG_MAPS, config_map("a"))
    assert (reply.code, reply.reason, reply.message) == (
        409,
        "AlreadyExists",
        'configmaps "a" already exists',
    )


async def test_an_unknown_namespace_and_object_are_not_found(api: Api) -> None:
    reply = await api.post("/api/v1/namespaces/nowhere/configmaps", config_map("a"))
    assert (reply.code, reply.message) == (404, 'namespaces "nowhere" not found')
    reply = await api.get(f"{CONFIG_MAPS}/gone")
    assert (reply.code, reply.reason, reply.body["details"]) == (
        404,
        "NotFound",
        {"name": "gone", "kind": "configmaps"},
    )


async def test_a_stale_put_conflicts_and_a_put_without_version_does_not(api: Api) -> None:
    first = (await api.post(CONFIG_MAPS, config_map("a", x="1"))).body
    assert (await api.put(f"{CONFIG_MAPS}/a", config_map("a", x="2"))).code == 200
    reply = await api.put(f"{CONFIG_MAPS}/a", first)
    assert (reply.code, reply.reason) == (409, "Conflict")
    assert "the object has been modified" in reply.message


async def test_a_custom_resource_is_not_put_without_version(things: Api) -> None:
    await things.post(THINGS, thing(replicas=1))
    reply = await things.put(f"{THINGS}/one", thing(replicas=2))
    assert reply.code == 422
    assert "metadata.resourceVersion" in reply.message


async def test_a_write_that_changes_nothing_keeps_the_version(things: Api) -> None:
    before = (await things.post(THINGS, thing(replicas=1))).body
    merged = (await things.patch(f"{THINGS}/one", {"spec": {"replicas": 1}})).body
    assert merged == before
    applied = (await things.apply(f"{THINGS}/one", thing(replicas=1))).body
    again = (await things.apply(f"{THINGS}/one", thing(replicas=1))).body
    assert again == applied


async def test_generation_counts_spec_changes_only(things: Api) -> None:
    one = f"{THINGS}/one"
    assert (await things.post(THINGS, thing(replicas=1))).body["metadata"]["generation"] == 1
    assert (await things.patch(one, {"metadata": {"labels": {"a": "b"}}})).body["metadata"]["generation"] == 1
    assert (await things.patch(f"{one}/status", {"status": {"x": 1}})).body["metadata"]["generation"] == 1
    assert (await things.patch(one, {"spec": {"replicas": 2}})).body["metadata"]["generation"] == 2


async def test_status_and_spec_do_not_bleed_into_each_other(things: Api) -> None:
    one = f"{THINGS}/one"
    created = await things.post(THINGS, thing(replicas=1) | {"status": {"ignored": True}})
    assert "status" not in created.body
    body = (await things.patch(f"{one}/status", {"spec": {"replicas": 9}, "status": {"x": 1}})).body
    assert (body["spec"]["replicas"], body["status"]) == (1, {"x": 1})
    body = (await things.patch(one, {"spec": {"replicas": 3}, "status": {"x": 2}})).body
    assert (body["spec"]["replicas"], body["status"]) == (3, {"x": 1})


async def test_dry_run_answers_but_stores_nothing(api: Api) -> None:
    reply = await api.post(CONFIG_MAPS, config_map("a", x="1"), dryRun="All")
    assert (reply.code, reply.body["data"]) == (201, {"x": "1"})
    assert (await api.get(f"{CONFIG_MAPS}/a")).code == 404
    assert (await api.post(CONFIG_MAPS, config_map("a"), dryRun="Some")).code == 422


async def test_unknown_fields_are_refused_warned_of_or_ignored(api: Api) -> None:
    body = pod("a", nonsense=1)
    strict = await api.post(PODS, body, fieldValidation="Strict")
    assert strict.code == 400
    assert 'strict decoding error: unknown field "spec.nonsense"' in strict.message
    warned = await api.post(PODS, body)
    assert warned.warnings == ['299 - "unknown field \\"spec.nonsense\\""']
    assert "nonsense" not in warned.body["spec"]
    assert (await api.post(PODS, pod("b", nonsense=1), fieldValidation="Ignore")).warnings == []


async def test_finalizers_hold_an_object_until_the_last_is_gone(api: Api) -> None:
    one = f"{CONFIG_MAPS}/a"
    await api.post(CONFIG_MAPS, config_map("a") | {"metadata": {"name": "a", "finalizers": ["x/1", "x/2"]}})
    marked = (await api.delete(one)).body
    assert marked["metadata"]["deletionTimestamp"]
    reply = await api.patch(one, {"metadata": {"finalizers": ["x/1", "x/2", "x/3"]}})
    assert reply.code == 422
    assert "no new finalizers" in reply.message
    operations = [
        {"op": "test", "path": "/metadata/finalizers/0", "value": "x/1"},
        {"op": "remove", "path": "/metadata/finalizers/0"},
    ]
    assert (await api.patch(one, operations, "json")).body["metadata"]["finalizers"] == ["x/2"]
    assert (await api.patch(one, operations, "json")).code == 422
    assert (await api.patch(one, {"metadata": {"finalizers": None}})).code == 200
    assert (await api.get(one)).code == 404


async def test_deletion_keeps_its_preconditions(api: Api) -> None:
    created = (await api.post(CONFIG_MAPS, config_map("a"))).body["metadata"]
    for precondition in ({"uid": "other"}, {"resourceVersion": "1"}):
        reply = await api.delete(f"{CONFIG_MAPS}/a", {"preconditions": precondition})
        assert (reply.code, reply.reason) == (409, "Conflict")
    reply = await api.delete(f"{CONFIG_MAPS}/a", {"preconditions": {"uid": created["uid"]}})
    assert (reply.code, reply.body["status"]) == (200, "Success")
    assert reply.body["details"]["uid"] == created["uid"]


async def test_delete_collection_takes_what_the_selector_matches(api: Api) -> None:
    for name in "abc":
        body = config_map(name)
        body["metadata"]["labels"] = {"name": name}
        await api.post(CONFIG_MAPS, body)
    await api.delete(CONFIG_MAPS, labelSelector="name in (a,b)")
    assert await api.names(CONFIG_MAPS) == ["c"]


async def test_objects_beyond_the_limit_are_refused(api: Api) -> None:
    reply = await api.post(CONFIG_MAPS, config_map("a", x="y" * (1024 * 1024 + 1)))
    assert (reply.code, reply.reason) == (422, "Invalid")
    large = await api.post(CONFIG_MAPS, config_map("a", x="y" * 1024 * 1024))
    assert large.code == 201


@pytest.mark.parametrize("body", [b"{bad", b"[]", b"", b"\xff"])
async def test_a_body_that_is_no_object_is_a_bad_request(api: Api, body: bytes) -> None:
    reply = await api.post(CONFIG_MAPS, body)
    assert (reply.code, reply.reason) == (400, "BadRequest")


async def test_unknown_paths_methods_and_media_types(api: Api) -> None:
    assert (await api.get("/api/v1/namespaces/default/nonsense")).code == 404
    assert (await api.get("/apis/nope.io/v1/things")).code == 404
    assert (await api.call("PUT", CONFIG_MAPS, config_map("a"))).code == 405
    await api.post(CONFIG_MAPS, config_map("a"))
    assert (await api.call("PATCH", f"{CONFIG_MAPS}/a", {}, "text/plain")).code == 415


async def test_a_token_is_needed_except_for_health(api: Api) -> None:
    api.session.headers.pop("Authorization")
    assert (await api.get("/readyz")).body == "ok"
    reply = await api.get(CONFIG_MAPS)
    assert (reply.code, reply.reason) == (401, "Unauthorized")
