"""Counts each record in its own row on the servers: `python seen.py RECORDS FOLDER [SECONDS]`.

Each batch adds a line to FOLDER/steps: its time, the pod and the servers. Until FOLDER/gate is there, it
takes SECONDS, ten times as many near the end, and the last shards wait. In the end what was counted is
written to FOLDER/counts.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from elasticjob.trainer.shards import Dataset
from elasticjob.trainer.store import SGD, Store, Table, Zeros

RECORDS, FOLDER = int(sys.argv[1]), Path(sys.argv[2])
PACE = float(sys.argv[3]) if len(sys.argv) > 3 else 0.02
SEEN = Table("seen", 1, SGD(1.0), Zeros())


def rows(records: Sequence[int]) -> np.ndarray:
    """Return the rows of records: in a few partitions, each of which so sees all batches of a shard."""
    numbers = np.asarray(records)
    return np.asarray(64 * numbers + 13 * (numbers % 5))


with Store([SEEN], Dataset(name="records", size=RECORDS, shard=20), save_every=2.0) as store:
    for batch in store.batches(5):
        while batch.start >= RECORDS - 100 and not (FOLDER / "gate").exists():
            time.sleep(0.01)
            store.at_boundary()
        batch.push({"seen": (rows(batch.records), -np.ones((len(batch.records), 1)))})
        with (FOLDER / "steps").open("a") as file:
            print(f"{time.time():.3f}", os.environ.get("POD_NAME"), *store.servers, file=file)
        slow = PACE if batch.start < RECORDS * 3 // 4 else 10 * PACE
        time.sleep(0.0 if (FOLDER / "gate").exists() else slow)
    counts = store.pull("seen", rows(range(RECORDS)))[:, 0].tolist()
    new = FOLDER / f".counts-{time.monotonic_ns()}"
    new.write_text(json.dumps(counts))
    new.replace(FOLDER / "counts")
