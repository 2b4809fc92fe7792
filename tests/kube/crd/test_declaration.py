"""What a declaration says beside the schema, and the field types of Kubernetes as Python reads them."""

from __future__ import annotations

from datetime import timedelta

import pytest
from pydantic import create_model

from elasticjob.kube.crd import (
    Column,
    CustomResource,
    Declaration,
    Duration,
    MicroTime,
    OneCondition,
    Part,
    Scale,
    Time,
    crd_manifest,
)
from elasticjob.kube.kinds import Kind


class Item(Part):
    name: str
    size: int = 1
    selector: str = ""


class Things(CustomResource):
    """Some things."""

    spec: Item
    status: Item = Item(name="")


THINGS = Kind("example.org", "v1", "Things", "things", Things, namespaced=False)


def test_a_declaration_says_the_rest() -> None:
    manifest = crd_manifest(
        Declaration(
            THINGS,
            short_names=("th",),
            categories=("all",),
            columns=(Column("Size", ".spec.size", "integer", "How large.", wide=True),),
            scale=Scale(".spec.size", ".status.size", ".status.selector"),
            selectable=(".spec.name",),
            annotations={"a": "b"},
        )
    )
    assert manifest["metadata"] == {"name": "things.example.org", "annotations": {"a": "b"}}
    assert manifest["spec"]["scope"] == "Cluster"
    assert manifest["spec"]["names"] == {
        "kind": "Things",
        "listKind": "ThingsList",
        "plural": "things",
        "singular": "things",
        "shortNames": ["th"],
        "categories": ["all"],
    }
    [version] = manifest["spec"]["versions"]
    assert version["additionalPrinterColumns"] == [
        {
            "name": "Size",
            "type": "integer",
            "jsonPath": ".spec.size",
            "description": "How large.",
            "priority": 1,
        }
    ]
    assert version["selectableFields"] == [{"jsonPath": ".spec.name"}]
    assert version["subresources"] == {
        "status": {},
        "scale": {
            "specReplicasPath": ".spec.size",
            "statusReplicasPath": ".status.size",
            "labelSelectorPath": ".status.selector",
        },
    }
    assert version["schema"]["openAPIV3Schema"]["required"] == ["spec"]


def test_objects_are_read_and_written_in_their_json_form() -> None:
    model = create_model(
        "State",
        __base__=Part,
        end_time=(Time, ...),
        conditions=(list[OneCondition], ...),
        pause=(Duration, ...),
        renewed=(MicroTime, ...),
        none=(int | None, None),
    )
    state = {
        "endTime": "2026-01-01T00:00:00Z",
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        "pause": "1h30m",
        "renewed": "2026-01-01T00:00:00.000001Z",
    }
    assert model.model_validate(state).manifest() == state


@pytest.mark.parametrize(
    ("text", "length", "again"),
    [
        ("5s", timedelta(seconds=5), "5s"),
        ("90m", timedelta(minutes=90), "1h30m"),
        ("1.5s", timedelta(seconds=1.5), "1s500ms"),
    ],
)
def test_durations_are_gos(text: str, length: timedelta, again: str) -> None:
    model = create_model("Wait", __base__=Part, it=(Duration, ...))
    read = model.model_validate({"it": text})
    assert read == model.model_validate({"it": length})
    assert read.manifest() == {"it": again}


def test_metadata_is_kubes_own() -> None:
    thing = THINGS.convert(
        {"metadata": {"name": "a", "uid": "u", "creationTimestamp": None}, "spec": {"name": "x"}}
    )
    assert (thing.key.name, thing.metadata.uid, thing.metadata.creation_timestamp) == ("a", "u", None)
