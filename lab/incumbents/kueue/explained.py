"""Differences that are meant, each a row of docs/kueue.md; what is not here is a defect."""

from __future__ import annotations

from typing import Final

from lab.incumbents.oracle import Explained

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
ABSENT: Final = "no queue holds them back any more"
LATE: Final = "tried again ever less often"
MACHINE: Final = "made again at once"
SETTINGS: Final = "settings of Kueue for its own kinds"
UNLABELLED: Final = "it starts at once, outside all queues"

ADMITTED: Final = {
    "quota": "admitted",
    "flavors": "*cpu of *",
    "ready": "True",
    "pods": "*Running*",
    "placed": "*'*",
    "suspended": "False",
    "pods made": "[1-9]",
}
"""What is seen of a neighbour that gets what ours has beyond its minimum."""
OF_A: Final = (
    ("*: a.workloads", SLICES, "*"),
    ("*queue *", SLICES, "*"),
    ("*quota of *", SLICES, "*"),
    ("*: a.pods", GROWS, "*Running*"),
    ("*: a.placed", GROWS, "*"),
    ("*: a.flavors", GROWS, "*"),
    ("*: a.pods made", LEAVES, "[0-9]"),  # no job comes and goes again and again
    ("*: a.evictions", LEAVES, "{}"),
    ("*: a.evictions", LEAVES, "{'Preempted': 1}"),
)

EXPLAINED: Final[tuple[Explained, ...]] = (
    *(Explained(stories, keys, row, ours) for stories in ELASTIC for keys, row, ours in OF_A),
    *(
        Explained(stories, f"*: [wxyz]*.{fact}", OTHERS, ours)
        for stories in ELASTIC
        for fact, ours in ADMITTED.items()
    ),
    Explained("a size that changes *", "*: a.workloads", SLICES),
    Explained("a size that changes *", "4 *", GROWS),
    Explained("suspended by its user*", "*", SUSPEND),
    Explained("a machine of a topology goes", "2 *", MACHINE),
    Explained("Kueue is uninstalled, and installed anew", "[345] *: b.*", ABSENT),
    Explained("Kueue is uninstalled, and installed anew", "6 *", ABSENT),
    Explained("waitForPodsReady: pods run in time*", "*: a.*", MACHINE),
    Explained("waitForPodsReady: an elastic job, of which some pods never run", "*", LATE),
    Explained("manageJobsWithoutQueueName*", "*", SETTINGS),
    Explained("managedJobsNamespaceSelector*", "*", SETTINGS),
    Explained("a LocalQueue called default", "*", SETTINGS),
    Explained("the label is taken away from one that waits*", "*: *a.*", UNLABELLED),
    Explained("the label is taken away from one that waits*", "*: quota of q", UNLABELLED),
)
