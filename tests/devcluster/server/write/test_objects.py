"""What a refusal tells, and how large an object may be."""

from __future__ import annotations

from tests.kit.devcluster.api import CONFIG_MAPS, PODS, Api, config_map, pod


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


async def test_methods_and_tokens_that_do_not_fit(api: Api) -> None:
    assert (await api.put(CONFIG_MAPS, config_map("a"))).code == 405
    api.session.headers.pop("Authorization")
    assert (await api.get("/readyz")).body == "ok"
    assert (await api.get(CONFIG_MAPS)).code == 401


async def test_objects_beyond_the_limit_are_refused(api: Api) -> None:
    reply = await api.post(CONFIG_MAPS, config_map("a", x="y" * (1024 * 1024 + 1)))
    assert (reply.code, reply.reason) == (422, "Invalid")
    large = await api.post(CONFIG_MAPS, config_map("a", x="y" * 1024 * 1024))
    assert large.code == 201
