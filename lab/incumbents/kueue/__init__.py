"""Kueue's own integration of batch/v1 Jobs beside ours: an oracle for each configuration of Kueue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final

from lab.clusters.plane.kueue import why_missing
from lab.incumbents.kueue.explained import EXPLAINED, MASKS
from lab.incumbents.kueue.fields import every_field, gaps
from lab.incumbents.kueue.stage import STORIES, stage
from lab.incumbents.oracle import Oracle
from lab.paths import DOCS

SELECTED: Final = {"matchLabels": {"managed": "yes"}}
UNTIL_READY: Final = {
    "timeout": "20s",
    "recoveryTimeout": "20s",
    "blockAdmission": False,
    "requeuingStrategy": {"backoffLimitCount": 1, "backoffBaseSeconds": 1},
}
SHARES: Final = {
    "fairSharing": {"preemptionStrategies": ["LessThanOrEqualToFinalShare", "LessThanInitialShare"]},
    "admissionFairSharing": {"usageHalfLifeTime": "60s", "usageSamplingInterval": "1s"},
}
SETTINGS: Final[Mapping[str, Mapping[str, Any]]] = {
    "kueue": {},
    "kueue-ready": {"wait_for_pods_ready": UNTIL_READY},
    "kueue-fair": {"settings": SHARES},
    "kueue-unnamed": {
        "settings": {"manageJobsWithoutQueueName": True, "managedJobsNamespaceSelector": SELECTED}
    },
    "kueue-anew": {},
}
"""What is set in Kueue's configuration."""


def unplaced() -> Sequence[str]:
    """Return what is wrong with the list of fields; nothing is known of it where Kueue is not built."""
    if why_missing():
        return ()
    return [*gaps([story for stories in STORIES.values() for story in stories], [*every_field()])]


def _oracle(name: str, settings: Mapping[str, Any]) -> Oracle:
    stories = STORIES[name]
    return Oracle(
        name,
        DOCS / "kueue.md",
        [*stories],
        lambda folder, _: stage(folder, stories, settings),
        [each for each in EXPLAINED if any(fnmatchcase(story, each.stories) for story in stories)],
        MASKS,
        gaps=unplaced if name == "kueue" else lambda: (),
    )


ORACLES: Final = tuple(_oracle(name, settings) for name, settings in SETTINGS.items())
