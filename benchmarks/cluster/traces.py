"""The published workloads: what jobs were submitted, and how fast and how well each application trains.

Data of the Pollux paper (OSDI 2021; petuum/adaptdl, branch osdi21-artifact, Apache-2.0): a folder with
`jobs/<load>/<n>.csv`, `models/<application>/{placements,scalability,validation-<batch>}.csv`. Step times are
seconds, `placement` lists the GPUs on each node, progress is counted in steps at the initial batch.
"""

from __future__ import annotations

import csv
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import LinearNDInterpolator, NearestNDInterpolator

Array = NDArray[np.float64]

EPOCHS: Final[Mapping[str, int]] = {
    "bert": 2,
    "cifar10": 100,
    "ncf": 10,
    "imagenet": 90,
    "deepspeech2": 80,
    "yolov3": 50,
}
"""Epochs until an application is trained; another one trains all that were measured."""
LARGEST_LOCAL: Final[Mapping[str, int]] = {"yolov3": 8}
FIXED_BATCH: Final[Mapping[str, int]] = {"ncf": 32768}
NODES: Final = 16
"""Step times of more nodes are those of so many."""

JOBS: Final = ("name", "time", "application", "num_replicas", "batch_size")
PLACEMENTS: Final = ("placement", "local_bsz", "step_time", "sync_time")
SCALABILITY: Final = ("num_nodes", "num_replicas", "local_bsz", "step_time", "sync_time")
VALIDATION: Final = ("progress", "iteration", "metric", "grad_sqr", "grad_var")


class BadTrace(ValueError):
    """A file is missing, or is not as described. The message names the file, the line, and what is wrong."""


@dataclass(frozen=True)
class Submission:
    """A job as its user submits it, `time` seconds after the beginning."""

    name: str
    time: float
    application: str


@dataclass(frozen=True)
class Validation:
    """An application trained with one global batch; one value for each epoch."""

    batch: int
    progress: Array
    grad_sqr: Array
    grad_var: Array


@dataclass(frozen=True)
class Application:
    """The truth about an application, of which a policy sees what its jobs have measured."""

    name: str
    placements: Mapping[tuple[int, ...], tuple[Array, Array]]
    """Local batches, and step and synchronisation time of each, by the GPUs on each node."""
    points: tuple[Array, Array]
    """Nodes, GPUs and local batch; step and synchronisation time of each."""
    validations: tuple[Validation, ...]
    epochs: int
    least_local: int
    most_local: int
    fixed_batch: int | None = None
    _steps: dict[tuple[tuple[int, ...], int], tuple[float, float]] = field(default_factory=dict, repr=False)

    @property
    def first_batch(self) -> int:
        return self.validations[0].batch

    @property
    def most_batch(self) -> int:
        return self.validations[-1].batch

    @cached_property
    def ends(self) -> Array:
        """The progress at which each epoch ends: the least of all measured batches."""
        ends: Array = np.min([each.progress[: self.epochs] for each in self.validations], axis=0)
        return ends

    def step_time(self, placement: Sequence[int], local: int) -> tuple[float, float]:
        """Return seconds of a step, and of the synchronisation in it, with so many GPUs on each node."""
        place = min(tuple(placement[i:]) + tuple(placement[:i]) for i in range(len(placement)))
        if (place, local) not in self._steps:
            self._steps[place, local] = self._interpolated(place, local)
        return self._steps[place, local]

    def gradient(self, batch: float, epoch: int) -> tuple[float, float]:
        """Return the squared norm of the gradient and its variance, as measured in an epoch."""
        batches = [each.batch for each in self.validations]
        upper = min(max(bisect_left(batches, batch), 1), len(batches) - 1)
        low, high = self.validations[upper - 1], self.validations[upper]
        share = (batch - low.batch) / (high.batch - low.batch)
        sqr = (1 - share) * low.grad_sqr[epoch] + share * high.grad_sqr[epoch]
        var = (1 - share) * low.grad_var[epoch] + share * high.grad_var[epoch]
        return float(sqr), float(var)

    def _interpolated(self, place: tuple[int, ...], local: int) -> tuple[float, float]:
        if place in self.placements:
            locals_, times = self.placements[place]
            return tuple(float(np.interp(local, locals_, times[:, i])) for i in (0, 1))  # type: ignore[return-value]
        at = [[min(len(place), NODES), sum(place), local]]
        found = self._linear(at)
        if np.isnan(found).any():
            found = self._nearest(at)
        return float(found[0, 0]), float(found[0, 1])

    @cached_property
    def _linear(self) -> LinearNDInterpolator:
        return LinearNDInterpolator(*self.points)

    @cached_property
    def _nearest(self) -> NearestNDInterpolator:
        return NearestNDInterpolator(*self.points, rescale=True)


def read_jobs(path: Path, applications: Mapping[str, Application]) -> tuple[Submission, ...]:
    """Return the jobs of a workload, by time. Raises BadTrace."""
    found = []
    for line, row in _rows(path, JOBS):
        if row["application"] not in applications:
            known = ", ".join(sorted(applications))
            raise BadTrace(f"{path}, line {line}: application {row['application']!r} is none of {known}")
        time = _number(row["time"], path, line, "time")
        found.append(Submission(row["name"], time, row["application"]))
    names = [each.name for each in found]
    for name in names:
        if names.count(name) > 1:
            raise BadTrace(f"{path}: two jobs are named {name!r}")
    return tuple(sorted(found, key=lambda each: (each.time, each.name)))


def read_applications(folder: Path) -> dict[str, Application]:
    """Return the applications of a folder, one for each folder in it. Raises BadTrace."""
    if not folder.is_dir():
        raise BadTrace(f"{folder} is no folder")
    found = {each.name: read_application(each) for each in sorted(folder.iterdir()) if each.is_dir()}
    if not found:
        raise BadTrace(f"{folder} has no folder of an application")
    return found


def read_application(folder: Path) -> Application:
    """Return what was measured of an application. Raises BadTrace."""
    placed: dict[tuple[int, ...], list[tuple[float, ...]]] = {}
    path = folder / "placements.csv"
    for line, row in _rows(path, PLACEMENTS):
        if not row["placement"].isdigit() or "0" in row["placement"]:
            raise BadTrace(
                f"{path}, line {line}: placement {row['placement']!r} is not a digit for each node"
            )
        placed.setdefault(tuple(map(int, row["placement"])), []).append(
            _times(row, path, line, PLACEMENTS[1:])
        )
    path = folder / "scalability.csv"
    scaled = [_times(row, path, line, SCALABILITY) for line, row in _rows(path, SCALABILITY)]
    validations = _validations(folder)
    locals_ = [batch for rows in placed.values() for batch, *_ in rows]
    epochs = min(len(each.progress) for each in validations)
    return Application(
        name=folder.name,
        placements={place: _sorted(rows) for place, rows in placed.items()},
        points=_points(placed, scaled),
        validations=validations,
        epochs=min(EPOCHS.get(folder.name, epochs), epochs),
        least_local=int(min(locals_)),
        most_local=LARGEST_LOCAL.get(folder.name, int(max(locals_))),
        fixed_batch=FIXED_BATCH.get(folder.name),
    )


def _validations(folder: Path) -> tuple[Validation, ...]:
    found = []
    for path in folder.glob("validation-*.csv"):
        batch = path.stem.removeprefix("validation-")
        if not batch.isdigit():
            raise BadTrace(f"{path}: the name does not end with a batch size")
        rows = [
            tuple(_number(row[name], path, line, name) for name in VALIDATION)
            for line, row in _rows(path, VALIDATION)
        ]
        table = np.array(rows)
        if (np.diff(table[:, 0], prepend=0.0) <= 0).any():
            raise BadTrace(f"{path}: progress does not grow from epoch to epoch")
        found.append(Validation(int(batch), table[:, 0], table[:, 3], table[:, 4]))
    if len(found) < 2:
        raise BadTrace(f"{folder} has no validation-<batch>.csv of two batches or more")
    return tuple(sorted(found, key=lambda each: each.batch))


def _sorted(rows: Sequence[tuple[float, ...]]) -> tuple[Array, Array]:
    table = np.array(sorted(rows))
    return table[:, 0], table[:, 1:]


def _points(
    placed: Mapping[tuple[int, ...], Sequence[tuple[float, ...]]],
    scaled: Sequence[tuple[float, ...]],
) -> tuple[Array, Array]:
    """Return the means of placements with the same number of nodes and GPUs, and what was scaled."""
    same: dict[tuple[float, float, float], list[tuple[float, float]]] = {}
    for place, rows in placed.items():
        for batch, step, sync in rows:
            same.setdefault((len(place), sum(place), batch), []).append((step, sync))
    keys, means = list(same), [np.mean(times, axis=0) for times in same.values()]
    return (
        np.array([*keys, *(row[:3] for row in scaled)], dtype=float),
        np.array([*means, *(row[3:] for row in scaled)], dtype=float),
    )


def _rows(path: Path, columns: Sequence[str]) -> list[tuple[int, dict[str, str]]]:
    """Return the rows of a file with their lines. Raises BadTrace where columns or values are missing."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadTrace(f"{path} cannot be read: {error}") from error
    reader = csv.DictReader(text.splitlines())
    if missing := [name for name in columns if name not in (reader.fieldnames or ())]:
        raise BadTrace(f"{path} has no column {', '.join(missing)}")
    rows = []
    for row in reader:
        if any(row[name] is None for name in columns) or None in row:
            raise BadTrace(f"{path}, line {reader.line_num}: {len(columns)} values are wanted")
        rows.append((reader.line_num, row))
    if not rows:
        raise BadTrace(f"{path} has no rows")
    return rows


def _times(row: Mapping[str, str], path: Path, line: int, columns: Sequence[str]) -> tuple[float, ...]:
    """Return the numbers of a row, the last two of which are a step and the synchronisation in it."""
    *key, step, sync = (_number(row[name], path, line, name) for name in columns)
    if not (all(key) and sync < step):
        raise BadTrace(f"{path}, line {line}: a step of {step:g} s is not longer than its synchronisation")
    return (*key, step, sync)


def _number(text: str, path: Path, line: int, column: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise BadTrace(f"{path}, line {line}: {column} {text!r} is not a number of zero or more")
    return value
