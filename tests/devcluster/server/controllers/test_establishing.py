"""Definitions come to be served a moment after they are stored, and only under names that are free."""

from __future__ import annotations

from typing import Any

import pytest

from elasticjob.devcluster.server import ApiServer
from elasticjob.devcluster.server.controllers.establishing import OtherNames, next_status
from tests.kit.devcluster.api import CRDS, THINGS, Api, client, definition, thing

NOW = "2026-01-01T00:00:00Z"
NAMES = {
    "plural": "things",
    "singular": "thing",
    "kind": "Thing",
    "listKind": "ThingList",
    "shortNames": ["th"],
}
FREE = OtherNames(frozenset(), frozenset())


def crd(status: Any = None, **names: Any) -> dict[str, Any]:
    return {"spec": {"group": "example.com", "names": NAMES | names}, "status": status or {}}


def reasons(status: Any) -> dict[str, tuple[str, str]]:
    return {each["type"]: (each["status"], each["reason"]) for each in status["conditions"]}


@pytest.mark.parametrize(
    ("used", "reason", "missing"),
    [
        (OtherNames(frozenset({"things"}), frozenset()), "PluralConflict", "plural"),
        (OtherNames(frozenset({"thing"}), frozenset()), "SingularConflict", "singular"),
        (OtherNames(frozenset({"th"}), frozenset()), "ShortNamesConflict", "shortNames"),
        (OtherNames(frozenset(), frozenset({"Thing"})), "KindConflict", "kind"),
        (OtherNames(frozenset(), frozenset({"ThingList"})), "ListKindConflict", "listKind"),
    ],
)
def test_a_name_that_another_has_is_not_accepted(used: OtherNames, reason: str, missing: str) -> None:
    status = next_status(crd(), used, NOW)
    assert status is not None
    assert reasons(status) == {"NamesAccepted": ("False", reason), "Established": ("False", "NotAccepted")}
    assert not status["acceptedNames"].get(missing)


def test_free_names_are_accepted_and_then_the_definition_is_established() -> None:
    first = next_status(crd(), FREE, NOW)
    assert first is not None
    assert reasons(first) == {
        "NamesAccepted": ("True", "NoConflicts"),
        "Established": ("False", "Installing"),
    }
    second = next_status(crd(first), FREE, NOW)
    assert second is not None
    assert reasons(second)["Established"] == ("True", "InitialNamesAccepted")
    assert next_status(crd(second), FREE, NOW) is None


def test_an_established_definition_keeps_its_names_where_a_new_one_is_taken() -> None:
    first = next_status(crd(), FREE, NOW)
    established = next_status(crd(first), FREE, NOW)
    taken = OtherNames(frozenset({"tt"}), frozenset())
    status = next_status(crd(established, shortNames=["tt"]), taken, "2026-01-02T00:00:00Z")
    assert status is not None
    assert reasons(status) == {
        "NamesAccepted": ("False", "ShortNamesConflict"),
        "Established": ("True", "InitialNamesAccepted"),
    }
    assert status["acceptedNames"]["shortNames"] == ["th"]
    assert [each["lastTransitionTime"] for each in status["conditions"]] == ["2026-01-02T00:00:00Z", NOW]


async def test_objects_of_a_definition_are_not_there_until_it_is_established() -> None:
    async with ApiServer(establish_delay=3600) as server:
        server.add_token("secret", "admin", ["system:masters"])
        async with client(server) as api:
            made = await api.post(CRDS, definition())
            assert (made.code, made.body["status"]["conditions"]) == (201, None)
            assert (await api.post(THINGS, thing(replicas=1))).code == 404
            assert (await api.get("/apis/example.com/v1")).code == 404


async def test_a_watch_sees_a_definition_before_it_is_served_and_after(api: Api) -> None:
    await api.define(definition())
    async with api.watch(CRDS, resourceVersion="1") as events:
        seen = [await anext(events) for _ in range(3)]
    shown = [
        reasons(each["object"]["status"]) if each["object"]["status"]["conditions"] else {} for each in seen
    ]
    assert shown == [
        {},
        {"NamesAccepted": ("True", "NoConflicts"), "Established": ("False", "Installing")},
        {"NamesAccepted": ("True", "NoConflicts"), "Established": ("True", "InitialNamesAccepted")},
    ]
    assert (await api.post(THINGS, thing(replicas=1))).code == 201
