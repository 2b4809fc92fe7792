"""Edits of all fields: what they are, how two ends are compared, and a sample that is played."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from elasticjob.api.crds import DECLARATIONS
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from lab.build.manifests import ABSENT
from lab.simulation.edits import EQUAL, REFUSED, SUBJECTS, Subject, differences, edits, judge, merge_patch
from lab.simulation.fields import Edit, edits_of

JOB = SUBJECTS[0]
QUEUED = next(each for each in SUBJECTS if each.variant == "in a queue")
IMAGE = ("replicaSpecs", "worker", "template", "spec", "containers", "0", "image")


def test_each_kind_has_a_subject_whose_fields_are_edited() -> None:
    assert {each.kind for each in SUBJECTS} == {each.kind for each in DECLARATIONS}
    for each in SUBJECTS:
        paths = {edit.path for edit in edits_of(each.kind.resource, each.made, 1, 0.1)}
        assert len(paths) > 25, each.kind.name


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        (("suspend",), True, {"suspend": True}),
        (("runPolicy", "backoffLimit"), 1, {"runPolicy": {"backoffLimit": 1}}),
        (("resourceLimits", "cpu"), "8", {"resourceLimits": {"cpu": "8"}}),
        (("optimizeMode",), ABSENT, {"optimizeMode": None}),
        (("runPolicy", "failurePolicy", "rules", "0", "roles"), [],
         {"runPolicy": {"failurePolicy": {"rules": [
             {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [3]}, "roles": []}]}}}),
    ],
)  # fmt: skip
def test_an_edit_makes_what_is_around_its_field(path: Any, value: Any, expected: Any) -> None:
    after = Edit(path, value).of(ELASTICJOB.resource, JOB.made)
    assert merge_patch(JOB.made["spec"], after["spec"]) == expected


def test_what_differs_is_told_with_its_path() -> None:
    one = {"pods/a": {"spec": {"x": 1}}, "pods/b": {}}
    assert [*differences(one, {"pods/a": {"spec": {}}})] == [
        "/pods/a/spec/x: 1 → None",
        "/pods/b: only of the edited object",
    ]


@pytest.mark.parametrize(
    ("subject", "path", "value", "outcome"),
    [
        (JOB, IMAGE, "v2", EQUAL),
        (JOB, ("distributionStrategy",), "Local", REFUSED),
        (JOB, ("networkPolicy",), False, EQUAL),
        (QUEUED, ("replicaSpecs", "worker", "spares"), 5, EQUAL),
    ],
)
def test_what_becomes_of_an_edit(subject: Subject, path: Any, value: Any, outcome: str) -> None:
    found = judge(subject, (Edit(path, value),), seed=1)
    assert found.outcome == outcome, str(found)
    assert found.suspended == (path is IMAGE)


def test_a_sample_of_all_edits_ends_as_fresh_objects_do() -> None:
    told = io.StringIO()
    wrong = edits((), seed=3, sequences=0, report=Console(file=told, width=200), share=0.003)
    assert not wrong, told.getvalue()
