"""What the oracle takes for wrong, and that what is drawn is repeated by its number."""

from __future__ import annotations

import json
from random import Random

import pytest

from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.kube.objects.kinds import Manifest
from lab.build.manifests import JOB, changed
from lab.jobs.neighbour import Seen, disturbed
from lab.jobs.pulse import Pulse
from lab.programs.control_plane import errors_of
from lab.troubles import rubbish
from lab.truths.programs import Use, grown, judged

INFO = json.dumps({"message": "created", "level": "info", "object": "lab/digits"})
FAILED = {"message": "reconcile failed", "level": "error", "exception": "Traceback …\nKeyError: 'x'"}


@pytest.mark.parametrize(
    ("log", "wrong"),
    [
        (INFO, []),
        (json.dumps({**FAILED, "key": "lab/digits"}), []),
        (json.dumps(FAILED), ["brain logs an error that names no object: reconcile failed: KeyError: 'x'"]),
        (f"{INFO}\nTraceback …\nKeyError: 1", ["brain logs an error that names no object: KeyError: 1"]),
    ],
    ids=["no error", "an error of an object", "an error of nothing", "a bare traceback"],
)
def test_an_error_names_its_object(log: str, wrong: list[str]) -> None:
    found = [sentence for line in errors_of("brain", log) for sentence in judged(line, 1, 10)]
    assert [sentence[: len(expected)] for sentence, expected in zip(found, wrong, strict=True)] == wrong


def test_errors_about_one_object_become_rare() -> None:
    (line,) = errors_of("operator", json.dumps({**FAILED, "key": "lab/digits"}))
    told = [judged(line, count, 10.5) for count in range(1, 13)]
    assert [bool(each) for each in told] == [False] * 10 + [True, False]


def test_memory_and_series_stay_bounded() -> None:
    before = {"operator": Use(100 << 20, 600), "brain": Use(200 << 20, 400)}
    assert grown(before, {"operator": Use(150 << 20, 800), "brain": Use(290 << 20, 400)}, {}) == []
    wrong = grown(before, {"operator": Use(300 << 20, 901), "brain": Use(1 << 30, 400)}, {"brain": 2})
    assert wrong == [
        "operator holds 300 MiB, 100 at the beginning",
        "operator has 901 series, 600 at the beginning",
    ]


@pytest.mark.parametrize(
    ("changes", "uids", "wrong"),
    [
        ({}, {"0": "a", "1": "b", "2": "new"}, ""),
        ({"status/phase": "Scaling"}, {"0": "a", "1": "b"}, ""),
        ({"metadata/generation": 4}, {"0": "a", "1": "b"}, "has generation 4 instead of 3"),
        ({}, {"0": "a", "1": "c"}, "has another pod of index 1: c instead of b"),
        ({"status/phase": "Failed"}, {"0": "a", "1": "b"}, "is Failed"),
    ],
    ids=["as it was", "grows", "a spec that another wrote", "a pod that another deleted", "failed"],
)
def test_the_neighbour_is_left_alone(changes: Manifest, uids: dict[str, str], wrong: str) -> None:
    manifest = changed(JOB, {"metadata/generation": 3, "status/phase": "Running", **changes})
    seen = Seen(3, 2, Pulse().stamp(), {"0": "a", "1": "b"})
    (found,) = disturbed(ELASTICJOB.convert(manifest), uids, seen) or [""]
    assert found.startswith(wrong)


def test_what_is_drawn_is_repeated_by_its_number() -> None:
    for draw in (rubbish.job, rubbish.edit, rubbish.pod, rubbish.other_job, rubbish.sizes):
        for number in range(200):
            assert repr(draw(Random(number))) == repr(draw(Random(number)))
