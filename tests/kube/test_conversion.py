"""Conversion, purely: what becomes of one object, of a request, and of what cannot be converted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from elasticjob.kube.conversion import Conversion, ConversionReview, Spoke, convert, converted
from elasticjob.kube.crd import CustomResource, Part
from elasticjob.kube.kinds import Kind, Manifest
from elasticjob.kube.objects import Object, View


class BoxSpecV1(View, frozen=True):
    size: str = ""


class BoxV1(Object, frozen=True):
    """As it was: `size: 3x4`."""

    spec: BoxSpecV1 = BoxSpecV1()


class BoxSpec(Part):
    width: int
    height: int


class Box(CustomResource):
    """As it is: the hub."""

    spec: BoxSpec


V1 = Kind("example.org", "v1", "Box", "boxes", BoxV1)
V2 = Kind("example.org", "v2", "Box", "boxes", Box)
V3 = Kind("example.org", "v3", "Box", "boxes", dict)


def upgrade(old: BoxV1) -> Box:
    width, _, height = old.spec.size.partition("x")
    return Box(metadata=old.metadata, spec=BoxSpec(width=int(width), height=int(height)))


def downgrade(new: Box) -> BoxV1:
    return BoxV1(metadata=new.metadata, spec=BoxSpecV1(size=f"{new.spec.width}x{new.spec.height}"))


def from_sides(newest: Manifest) -> Box:
    width, height = newest["spec"]["sides"]
    return Box(spec=BoxSpec(width=width, height=height))


def to_sides(hub: Box) -> Manifest:
    return {"spec": {"sides": [hub.spec.width, hub.spec.height]}}


BOXES = Conversion(
    V2, (Spoke(V1, to_hub=upgrade, from_hub=downgrade), Spoke(V3, to_hub=from_sides, from_hub=to_sides))
)
METADATA = {
    "name": "a",
    "namespace": "ns",
    "uid": "u",
    "labels": {"color": "red"},
    "managedFields": [{"manager": "kubectl"}],
    "creationTimestamp": "2026-01-01T00:00:00Z",
}
SPECS: dict[str, Manifest] = {
    "v1": {"size": "3x4"},
    "v2": {"width": 3, "height": 4},
    "v3": {"sides": [3, 4]},
}


def box(version: str, spec: Manifest | None = None, **metadata: Any) -> Manifest:
    return {
        "apiVersion": f"example.org/{version}",
        "kind": "Box",
        "metadata": METADATA | metadata,
        "spec": SPECS[version] if spec is None else spec,
    }


def asked(given: Manifest, desired: str, conversion: Conversion[Any] = BOXES) -> Manifest:
    return convert(conversion, msgspec.json.encode(given), f"example.org/{desired}")


@pytest.mark.parametrize("source", SPECS)
@pytest.mark.parametrize("target", SPECS)
def test_every_version_becomes_every_other_and_keeps_its_metadata(source: str, target: str) -> None:
    assert asked(box(source), target) == box(target)


def requested(desired: str, *objects: Manifest) -> Manifest:
    body = {"request": {"uid": "u1", "desiredAPIVersion": f"example.org/{desired}", "objects": objects}}
    review = msgspec.json.decode(msgspec.json.encode(body), type=ConversionReview)
    return converted(BOXES, review.request)


def test_a_request_is_answered_in_its_order() -> None:
    answer = requested("v2", box("v1", name="a"), box("v2", name="b"), box("v1", name="c"))
    assert (answer["kind"], answer["apiVersion"]) == ("ConversionReview", "apiextensions.k8s.io/v1")
    response = answer["response"]
    assert (response["uid"], response["result"]) == ("u1", {"status": "Success"})
    assert response["convertedObjects"] == [box("v2", name=name) for name in "abc"]


@pytest.mark.parametrize(
    ("spoiled", "why"),
    [
        (
            box("v1", {"size": "large"}, name="b"),
            "Box ns/b from example.org/v1 to example.org/v2: invalid literal for int() with base 10: 'large'",
        ),
        (
            box("v1", {"size": 5}, name="b"),
            "Box ns/b from example.org/v1 to example.org/v2: Expected `str`, got `int` - at `$.spec.size`",
        ),
        (
            box("v3", name="b") | {"apiVersion": "example.org/v9"},
            "Box ns/b from example.org/v9 to example.org/v2: 'example.org/v9' is not known here; "
            "known are example.org/v1, example.org/v2, example.org/v3",
        ),
        (
            {"kind": "Box", "apiVersion": "example.org/v3"},
            "Box without a name from example.org/v3 to example.org/v2: KeyError: 'spec'",
        ),
    ],
)
def test_one_that_cannot_be_converted_fails_the_request_and_is_named(spoiled: Manifest, why: str) -> None:
    response = requested("v2", box("v1"), spoiled)["response"]
    assert response == {"uid": "u1", "result": {"status": "Failure", "message": why}}


def test_a_version_that_misses_a_field_names_its_path() -> None:
    message = requested("v1", box("v2", {"width": 3}))["response"]["result"]["message"]
    assert message == "Box ns/a from example.org/v2 to example.org/v1: spec.height: Field required"


def relabelled(**changed: Any) -> Conversion[Any]:
    def back(hub: Box) -> BoxV1:
        return BoxV1(metadata=msgspec.structs.replace(hub.metadata, **changed))

    return Conversion(V2, (Spoke(V1, to_hub=upgrade, from_hub=back),))


def test_labels_and_annotations_may_change() -> None:
    found = asked(box("v2"), "v1", relabelled(labels={}, annotations={"was": "v2"}))
    kept = {name: value for name, value in METADATA.items() if name != "labels"}
    assert found["metadata"] == kept | {"annotations": {"was": "v2"}}


@pytest.mark.parametrize("field", ["name", "namespace", "uid"])
def test_nothing_else_of_the_metadata_may(field: str) -> None:
    with pytest.raises(
        Exception, match=rf"metadata\.{field} was changed; only labels and annotations may be"
    ):
        asked(box("v2"), "v1", relabelled(**{field: "other"}))


def test_versions_are_of_one_kind_and_each_is_named_once() -> None:
    other = replace(V1, plural="crates")
    with pytest.raises(ValueError, match="are not versions of one kind"):
        Conversion(V2, (Spoke(other, to_hub=upgrade, from_hub=downgrade),))
    with pytest.raises(ValueError, match="a version is named twice"):
        Conversion(V2, (Spoke(V1, upgrade, downgrade), Spoke(V1, upgrade, downgrade)))
