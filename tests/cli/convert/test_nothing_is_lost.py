"""A field that nobody knows, anywhere in a manifest: it is in the result, or a note says that it is not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import deepcopy
from typing import Any, Final

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from elasticjob.cli.convert.conversion import outcome
from elasticjob.cli.convert.reading import sources
from elasticjob.cli.convert.system import Verdict, child
from elasticjob.cli.convert.systems import SYSTEMS
from elasticjob.kube.objects.kinds import Manifest
from tests.cli.convert.test_manifests import ROWS

EXAMPLES: Final[list[Manifest]] = [yaml.safe_load(row.given) for row in ROWS]
NAME: Final = "zz9"
MARK: Final = "of-nobody"
VALUES: Final = st.sampled_from([MARK, {"a": MARK}, [MARK], {"a": [{"b": MARK}]}, [{"a": MARK}, 1]])


def objects(value: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Find all objects of a manifest, by their paths."""
    if isinstance(value, dict):
        yield path, value
        for name, member in value.items():
            yield from objects(member, child(path, name))
    elif isinstance(value, list):
        for at, member in enumerate(value):
            yield from objects(member, child(path, at))


def within(path: str, other: str) -> bool:
    return path == other or path.startswith((f"{other}.", f"{other}["))


@settings(max_examples=100)
@given(st.data())
def test_a_field_of_nobody_is_named_or_kept(data: st.DataObject) -> None:
    manifest = deepcopy(data.draw(st.sampled_from(EXAMPLES)))
    path, place = data.draw(st.sampled_from(list(objects(manifest))), label="place")
    place[NAME] = data.draw(VALUES)
    [source] = sources("job.yaml", yaml.safe_dump(manifest))
    found = outcome(source, SYSTEMS)
    if found.refusal:
        assert path.partition(".")[0] in found.refusal
        return
    assert found.converted is not None
    added = child(path, NAME)
    below = [note for note in found.converted.notes if within(note.field, added)]
    above = [note for note in found.converted.notes if within(added, note.field)]
    nearest = max(above or below, key=lambda note: len(note.field), default=None)
    assert nearest is not None, f"nothing is said of {added}"
    if all(note.verdict is Verdict.KEPT for note in (*below, nearest)):
        made = json.dumps([found.converted.job, *found.converted.others])
        assert MARK in made, f"{nearest} is not in {made}"
    assert all(note.line is not None for note in found.converted.notes if note.verdict is Verdict.DROPPED)


JUNK: Final[st.SearchStrategy[Any]] = st.sampled_from(
    [None, True, 0, -1, 10**30, 1.5, "", "x", "a b", [], [None], ["x"], {}, {"x": None}, [{}], [[]], {"": 0}]
)


@settings(max_examples=100)
@given(st.data())
def test_values_of_any_kind_are_answered(data: st.DataObject) -> None:
    manifest = deepcopy(data.draw(st.sampled_from(EXAMPLES)))
    places = [(place, name) for _, place in objects(manifest) for name in place]
    place, name = data.draw(st.sampled_from(places), label="place")
    place[name] = data.draw(JUNK)
    for source in sources("job.yaml", yaml.safe_dump(manifest)):
        found = outcome(source, SYSTEMS)
        assert found.refusal or found.converted is not None or not found.system
