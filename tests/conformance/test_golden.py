"""devcluster answers as the real server did when it was recorded."""

from __future__ import annotations

import pytest

from tests.conformance import golden
from tests.conformance.compare import differences
from tests.conformance.known import KNOWN, outdated, unexplained
from tests.conformance.probes import SUBJECTS
from tests.conformance.running import seen_by
from tests.conformance.servers import embedded


@pytest.mark.parametrize("subject", SUBJECTS)
async def test_devcluster_answers_as_recorded(subject: str) -> None:
    recorded = golden.read(subject)
    async with embedded() as server:
        seen = await seen_by(server, SUBJECTS[subject])
    wrong = []
    for name, mine in seen.items():
        found = list(differences(recorded[name], mine))
        wrong += [f"{name}: {each.told()}" for each in unexplained(f"{subject}/{name}", found)]
        wrong += [
            f"{name}: {path} is as it should be: take it out of known.py"
            for path in outdated(f"{subject}/{name}", found)
        ]
    assert not wrong, "\n" + "\n".join(wrong)


def test_every_probe_is_recorded_and_has_a_place_of_its_own() -> None:
    assert {subject: set(golden.read(subject)) for subject in SUBJECTS} == {
        subject: {probe.name for probe in probes} for subject, probes in SUBJECTS.items()
    }
    for probes in SUBJECTS.values():
        slugs = [probe.slug for probe in probes]
        assert len(set(slugs)) == len(slugs)


def test_known_differences_are_of_probes_that_exist() -> None:
    names = {f"{subject}/{probe.name}" for subject, probes in SUBJECTS.items() for probe in probes}
    assert {place for each in KNOWN for place in each.places} <= names
