"""From bytes to items, and back from broken bytes."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticjob.kube.cache.wire import (
    Bookmark,
    Changed,
    ChangeType,
    Failed,
    Lines,
    Malformed,
    item_of,
    items_of,
    line_of,
)
from elasticjob.kube.client.client import as_page
from elasticjob.kube.errors import Gone, ServerError, Unreachable
from elasticjob.kube.objects.kinds import Manifest
from elasticjob.kube.objects.views import CONFIG_MAP
from lab.build.objects import bookmark, event, item, manifest, owned, status


@given(st.lists(st.binary().filter(lambda line: b"\n" not in line and line.strip() != b"")), st.data())
def test_lines_are_whole_however_the_chunks_fall(lines: list[bytes], data: st.DataObject) -> None:
    rest, cutter, found = b"".join(line + b"\n" for line in lines), Lines(), []
    while rest:
        size = data.draw(st.integers(1, len(rest)))
        chunk, rest = rest[:size], rest[size:]
        found += cutter.feed(chunk)
    assert found == lines


def test_what_is_not_a_whole_line_is_not_given() -> None:
    lines = Lines()
    assert lines.feed(b'{"a": 1}\n{"b"') == [b'{"a": 1}']
    assert lines.feed(b": 2") == []
    assert lines.feed(b"}\n\n") == [b'{"b": 2}']


def test_an_item_is_its_json_and_some_metadata() -> None:
    made = owned("pod", "job", 7) | {"spec": {"x": [1, 2, {"y": None}]}}
    found = item_of(msgspec.json.encode(made))
    assert msgspec.json.decode(found.raw) == made
    assert (found.key, found.meta.uid, found.meta.version) == (("ns", "pod"), "uid-pod", 7)
    assert [owner.uid for owner in found.meta.owner_references or ()] == ["uid-job"]


def test_managed_fields_are_not_kept() -> None:
    made = manifest(
        "a", 3, labels={"x": "y"}, managedFields=[{"manager": "kubectl", "fieldsV1": {"f:data": {}}}]
    )
    found = item_of(msgspec.json.encode(made))
    del made["metadata"]["managedFields"]
    assert msgspec.json.decode(found.raw) == made
    assert found.meta.managed_fields is msgspec.UNSET


FIELDS = [{"manager": "kubectl", "fieldsV1": {"f:data": {"f:a,b": {}}}}]
LOOKALIKE = {"note": 'x,"managedFields":[]', "copy": msgspec.json.encode({"managedFields": FIELDS}).decode()}


@pytest.mark.parametrize("managed", [FIELDS, []])
@pytest.mark.parametrize(
    "order", [("uid", "managedFields", "annotations"), ("managedFields", "uid"), ("managedFields",)]
)
@pytest.mark.parametrize("space", ["", " "])
@pytest.mark.parametrize("type_", ["ADDED", "MODIFIED", "DELETED"])
def test_managed_fields_are_cut_out_wherever_they_stand(
    managed: list[object], order: tuple[str, ...], space: str, type_: str
) -> None:
    """A kubelet's pod, a custom resource's sorted members, a server that writes spaces."""
    metadata = {"managedFields": managed, "uid": "u", "annotations": LOOKALIKE}
    shown: Manifest = {
        "kind": "Pod",
        "metadata": {name: metadata[name] for name in order},
        "spec": {"managedFields": [1]},
    }
    separators = ("," + space, ":" + space)
    line = json.dumps({"type": type_, "object": shown}, separators=separators).encode()
    found = line_of(line)
    assert isinstance(found, Changed)
    del shown["metadata"]["managedFields"]
    assert found.type == type_
    assert msgspec.json.decode(found.item.raw) == shown
    assert found.item == item_of(found.item.raw)


def test_a_line_with_more_than_an_event_is_read_as_well() -> None:
    line = b'{"type":"ADDED","object":{"metadata":{"name":"a"}},"more":{}}'
    found = line_of(line)
    assert isinstance(found, Changed)
    assert found.item.raw == b'{"metadata":{"name":"a"}}'


def test_one_bad_object_of_a_list_fails_alone() -> None:
    raws = [
        msgspec.json.encode(manifest("a")),
        b'{"metadata": {"labels": 5}}',
        msgspec.json.encode(manifest("b")),
    ]
    found = list(items_of([msgspec.Raw(raw) for raw in raws]))
    assert [type(each).__name__ for each in found] == ["Item", "Malformed", "Item"]


def test_an_object_that_is_nested_too_deep_fails_alone() -> None:
    """Servers store ten thousand levels; a reader of Python's ends at one thousand."""
    deep = b'{"metadata":{"name":"a"},"spec":' + b'{"x":' * 5000 + b"1" + b"}" * 5001
    assert isinstance(line_of(b'{"type":"ADDED","object":' + deep + b"}"), Malformed)
    assert [type(each) for each in items_of([msgspec.Raw(deep)])] == [Malformed]
    with pytest.raises(ValueError, match="nested deeper than can be read"):
        CONFIG_MAP.untyped().decode(deep)
    with pytest.raises(Unreachable, match="not a Kubernetes answer"):
        as_page(b'{"metadata":{"resourceVersion":"1"},"items":[' + deep + b"]}", "GET /x")


def test_events_of_a_watch() -> None:
    assert line_of(event("ADDED", manifest("a"))) == Changed(ChangeType.ADDED, item("a"))
    assert line_of(event("DELETED", manifest("a", 9))) == Changed(ChangeType.DELETED, item("a", 9))
    assert line_of(bookmark(12)) == Bookmark("12")
    assert line_of(bookmark(12, initial_done=True)) == Bookmark("12", initial_done=True)
    assert isinstance(line_of(event("MODIFIED", {"metadata": {"labels": 5}})), Malformed)


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (event("ERROR", status(410, "Expired")), Gone),
        (event("ERROR", status(500, "InternalError")), ServerError),
        (event("ERROR", {"odd": True}), Unreachable),
        (event("SOMETHING", manifest("a")), Unreachable),
        (b"<html>502 Bad Gateway</html>", Unreachable),
        (b'{"type": "ADDED"}', Unreachable),
    ],
)
def test_what_is_no_event_is_an_error(line: bytes, error: type[Exception]) -> None:
    found = line_of(line)
    assert isinstance(found, Failed)
    assert isinstance(found.error, error)
