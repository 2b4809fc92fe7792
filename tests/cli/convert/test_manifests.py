"""Manifests of other systems: `manifests/` has each with its notes and its job, or with its refusal."""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.cli.convert.conversion import outcome
from elasticjob.cli.convert.reading import sources
from elasticjob.cli.convert.system import Verdict, child
from elasticjob.cli.convert.systems import SYSTEMS
from elasticjob.kube.objects.kinds import Manifest
from tests.cli.convert.converted import converted
from tests.kit.admitted import refusals

FOLDER: Final = Path(__file__).parent / "manifests"
CASES: Final = {
    f"{path.parent.name}/{path.stem}": path.read_text() for path in sorted(FOLDER.glob("*/*.yaml"))
}
EXAMPLES: Final[list[Manifest]] = [
    given for given, job in map(yaml.safe_load_all, CASES.values()) if job is not None
]


@pytest.mark.parametrize("text", CASES.values(), ids=list(CASES))
def test_a_manifest_becomes_a_job_or_is_refused(text: str) -> None:
    """Comments above the job are all notes on a loss, and others that matter; no job: the refusal."""
    manifest, expected = text.split("\n---\n")
    comments = [line.removeprefix("# ") for line in expected.splitlines() if line.startswith("#")]
    found = converted(manifest)
    if (written := yaml.safe_load(expected)) is None:
        assert (found.is_refusal, [found.refusal]) == (True, comments)
        return
    assert found.converted is not None, found.refusal
    notes = {f"{note.line} {note}": note.lossy for note in found.converted.notes}
    assert [note for note, lossy in notes.items() if lossy or note in comments] == comments
    assert [note for note in notes if "does not know it" in note and note not in comments] == []
    job = {"apiVersion": ELASTICJOB.api_version, "kind": ELASTICJOB.name, **written}
    assert found.converted.job == job
    assert (refusals(job), found.is_refusal) == ([], False)


NAME: Final = "zz9"
MARK: Final = "of-nobody"
VALUES: Final = st.sampled_from([MARK, {"a": MARK}, [MARK], {"a": [{"b": MARK}]}, [{"a": MARK}, 1]])
FREE: Final = frozenset(
    [
        "labels",
        "annotations",
        "nodeSelector",
        "matchLabels",
        "limits",
        "requests",
        "env",
        "envs",
        "replicaResourceSpecs",
    ]
)
"""Mappings that take any name."""


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


@settings(max_examples=150)
@given(st.data())
def test_a_field_of_nobody_is_named_or_kept(data: st.DataObject) -> None:
    manifest = deepcopy(data.draw(st.sampled_from(EXAMPLES)))
    path, place = data.draw(st.sampled_from(list(objects(manifest))), label="place")
    place[NAME] = data.draw(VALUES)
    found = converted(yaml.safe_dump(manifest))
    if found.refusal:
        assert path.partition(".")[0] in found.refusal
        return
    assert found.converted is not None
    added = child(path, NAME)
    below = [note for note in found.converted.notes if within(note.field, added)]
    above = [note for note in found.converted.notes if within(added, note.field)]
    nearest = max(above or below, key=lambda note: len(note.field), default=None)
    assert nearest is not None, f"nothing is said of {added}"
    made = json.dumps([found.converted.job, *found.converted.others])
    if all(note.verdict is Verdict.KEPT for note in (*below, nearest)):
        assert MARK in made, f"{nearest} is not in {made}"
    if path.rpartition(".")[2] not in FREE:
        assert NAME not in str(found.converted.job) or NAME in str(found.problems), path
    assert all(note.line is not None for note in found.converted.notes if note.verdict is Verdict.DROPPED)


JUNK: Final[st.SearchStrategy[Any]] = st.sampled_from(
    [
        *(None, True, 0, 1, -1, 10**30, 1.5, "", "x", "a b", "$N"),
        *([], [None], [1], ["x"], [{}], [[]], {}, {"x": None}, {"a": 1}, {"spec": None}, {"": 0}),
    ]
)


@settings(max_examples=150)
@given(st.data())
def test_values_of_any_kind_are_answered(data: st.DataObject) -> None:
    manifest = deepcopy(data.draw(st.sampled_from(EXAMPLES)))
    for _ in range(data.draw(st.integers(1, 2), label="how many")):
        places = [(place, name) for _, place in objects(manifest) for name in place]
        place, name = data.draw(st.sampled_from(places), label="place")
        place[name] = deepcopy(data.draw(JUNK))
    for source in sources("job.yaml", yaml.safe_dump(manifest)):
        found = outcome(source, SYSTEMS)
        assert found.refusal or found.converted is not None or not found.system
