"""Differences that are meant, each a row of docs/kueue.md; what is not here is a defect."""

from __future__ import annotations

from typing import Final

from tests.incumbents.oracle import Explained

MASKS: Final = (("*: words", "each side has its own"),)

ELASTIC: Final = (
    "partial admission *",
    "elastic: *",
    "fairSharing: an elastic job *",
)
SLICES: Final = "the base, and one for each slice"
GROWS: Final = "grows into what is idle"
LEAVES: Final = "slices leave, the rest runs on"
OTHERS: Final = "others get what it has beyond"
SUSPEND: Final = "leaves the queue until its user"
MACHINE: Final = "made again at once"
SETTINGS: Final = "settings of Kueue for its own kinds"

EXPLAINED: Final[tuple[Explained, ...]] = (
    *(
        Explained(stories, keys, SLICES)
        for stories in ELASTIC
        for keys in ("*: a.workloads", "*queue *", "*quota of *")
    ),
    *(
        Explained(stories, keys, GROWS)
        for stories in ELASTIC
        for keys in ("*: a.pods", "*: a.placed", "*: a.flavors")
    ),
    *(
        Explained(stories, keys, LEAVES)
        for stories in ELASTIC
        for keys in ("*: a.pods made", "*: a.evictions")
    ),
    *(Explained(stories, f"*: {name}.*", OTHERS) for stories in ELASTIC for name in "wxyz"),
    Explained("suspended by its user*", "*", SUSPEND),
    Explained("a machine of a topology goes", "2 *", MACHINE),
    Explained("waitForPodsReady: pods run in time*", "*: a.*", MACHINE),
    Explained("manageJobsWithoutQueueName*", "*", SETTINGS),
    Explained("managedJobsNamespaceSelector*", "*", SETTINGS),
    Explained("a LocalQueue called default", "*", SETTINGS),
)
