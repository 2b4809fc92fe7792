"""How fast a job trains with other numbers of workers, from what was measured of it. Pure.

    per_size({1: 100.0, 2: 170.0}, most=8)   # {1: 100.0, 2: 170.0, 3: 222.0, 4: 261.5}

A step takes the same records for every number of workers n, so a record takes

    t(n) = c0/n + c1·(n − 1)/n        all c ≥ 0

seconds: computing in parallel, and an all-reduce whose bytes per worker grow with (n − 1)/n (Patarasuk and
Yuan, 2009). What was measured counts as it is. What was not is assumed to scale perfectly until there are two
sizes (Pollux, OSDI 2021, section 4.1), so that it is tried: at most twice the largest size that was seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

import numpy as np
from scipy.optimize import nnls

from elasticjob.api.numbers import LARGEST_WORLD
from elasticjob.api.v1alpha1.elasticjob import ElasticJob
from elasticjob.brain.fulfilment.offers import Candidate
from elasticjob.brain.fulfilment.state import Job

SLOWEST, FASTEST = 1e-9, 1e15
"""Records a second. Other speeds are no measurements: databases of older versions hold infinite ones."""
LONGEST: Final = 1e9
"""Seconds, some thirty years."""
AHEAD: Final = 2
"""Sizes up to so many times the largest that was seen are tried."""


def per_size(measured: Mapping[int, float], most: int) -> dict[int, float]:
    """Return records a second for each size from 1 on; empty where nothing was measured."""
    known = {n: v for n, v in measured.items() if 0 < n <= LARGEST_WORLD and SLOWEST <= v <= FASTEST}
    if not known:
        return {}
    n = np.array(sorted(known), dtype=float)
    times = np.array([1 / known[int(size)] for size in n])
    rows = np.stack([1 / n, (n - 1) / n], axis=1)
    if len(n) == 1:
        costs = np.array([times[0] * n[0], 0.0])
    else:
        costs, _ = nnls(rows / times[:, None], np.ones(len(n)))
    sizes = np.arange(1, min(most, AHEAD * int(n[-1])) + 1)
    perfect = np.min(times * n) / sizes  # by the worker that was fastest
    fitted = np.maximum(costs[0] / sizes + costs[1] * (sizes - 1) / sizes, perfect)
    found = zip(sizes.tolist(), fitted.tolist(), strict=True)
    return {size: known.get(size, 1 / time) for size, time in found}


def with_speeds(job: Job, measured: Mapping[int, float], seen: ElasticJob, now: datetime) -> Candidate:
    """Return a job with its speeds, and what it has done and has left to do, in records, where that is
    known."""
    speeds = per_size(measured, job.most)
    status = seen.status
    speed = speeds.get(job.now, 0.0)
    began = status.start_time and min(status.start_time, now)  # the operator may have another clock
    done = speed * (now - began).total_seconds() if began else 0.0
    remains = remaining(seen, now)
    return Candidate(job, speeds, done, speed * remains.total_seconds() if remains and speed else None)


def remaining(seen: ElasticJob, now: datetime) -> timedelta | None:
    """Return how long a job has yet to train at its present speed, None if that is not known.

    By its steps; its end is told by the clock of its master, which may be minutes ahead or behind.
    """
    if (told := seen.status.training) is None:
        return None
    if told.step and told.progress and told.steps_per_second and 0 < told.progress < 1:
        seconds = told.step * (1 - told.progress) / told.progress / told.steps_per_second
        return timedelta(seconds=min(max(seconds, 0.0), LONGEST))
    return told.eta - now if told.eta and told.eta > now else None
