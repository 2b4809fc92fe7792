"""Where the metrics of masters are read: from each master itself, or from a Prometheus server."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from math import nan
from typing import Final, Protocol

import aiohttp
import msgspec
from prometheus_client.parser import text_string_to_metric_families

from elasticjob.api.rpc.unreadable import UNREADABLE
from elasticjob.brain.history import Sample
from elasticjob.brain.monitor.samples import LABELS, METRICS, PREFIX, Malformed, Reading, sample_of
from elasticjob.kube.errors import Unreachable
from elasticjob.kube.http.bodies import read_at_most

SECONDS: Final = 5.0
"""The longest time of a request."""
LARGEST: Final = 8 * 1024 * 1024
"""Bytes of an answer."""
AT_ONCE: Final = 32
"""Masters whose pages are read at a time."""
PARSED_AT_ONCE: Final = 2
"""And parsed: the values of the largest page take ten times its bytes."""
PATIENT: Final = 4
SELDOM: Final = 16
"""Looks in a row without an answer after which a master is asked in every second look, every fourth and so
on, and at least in each of these."""
MOST_READINGS: Final = 1 << 16
WANTED: Final = re.compile(rf"{PREFIX}(?:{'|'.join(METRICS)})[\s{{]".encode())
"""The lines of a page that samples are made of."""
JOBS_AT_ONCE: Final = 32
"""Jobs in one query to Prometheus."""
JOB_LABELS: Final = ("job_name", "exported_job", "job")


class SourceError(Unreachable):
    """The metrics cannot be read now; the message says whose, and why."""


class TooLarge(SourceError):
    """The answer has more than LARGEST bytes."""


class Target(msgspec.Struct, frozen=True):
    """A job whose samples are wanted: its uid, its names, and host:port of its master, "" if it has none."""

    uid: str
    namespace: str
    name: str
    master: str = ""


Taken = Mapping[str, Sample | Malformed]
"""By uid: a sample of each job that trains and can be read, or why its metrics are none."""


class Source(Protocol):
    """Reads samples of jobs. A job that cannot be read is left out; SourceError if none can."""

    async def samples(self, jobs: Iterable[Target], now: datetime) -> Taken:
        """Return what was read; `now` is the time of the samples."""
        ...


class Masters:
    """Asks each master for its /metrics."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session
        self._few = asyncio.Semaphore(AT_ONCE)
        self._parsed = asyncio.Semaphore(PARSED_AT_ONCE)
        self._failed: dict[str, int] = {}
        """Looks in a row in which the master of a job could not be read."""
        self._looks = 0

    async def samples(self, jobs: Iterable[Target], now: datetime) -> Taken:
        """Return what the masters that answer say. Raises SourceError if there are some and none does."""
        known = [job for job in jobs if job.master]
        watched = [job for job in known if self._is_due(job.uid)]
        found = await asyncio.gather(*(self._sample(job, now) for job in watched))
        self._remember(known, watched, found)
        if watched and all(isinstance(each, SourceError) for each in found):
            raise SourceError(f"none of {len(watched)} masters can be read, the last: {found[-1]}")
        taken = zip(watched, found, strict=True)
        return {job.uid: each for job, each in taken if each and not isinstance(each, SourceError)}

    def _is_due(self, uid: str) -> bool:
        """Whether a master is to be asked in this look: those that do not answer hold up all others, so they
        are asked more and more seldom."""
        beyond = self._failed.get(uid, 0) - PATIENT
        return beyond < 0 or self._looks % min(2 ** (beyond + 1), SELDOM) == 0

    def _remember(
        self,
        known: Iterable[Target],
        watched: Iterable[Target],
        found: Iterable[Sample | Malformed | SourceError | None],
    ) -> None:
        self._looks += 1
        uids = {job.uid for job in known}
        self._failed = {uid: count for uid, count in self._failed.items() if uid in uids}
        for job, each in zip(watched, found, strict=True):
            self._failed[job.uid] = self._failed.get(job.uid, 0) + 1 if isinstance(each, SourceError) else 0

    async def _sample(self, job: Target, now: datetime) -> Sample | Malformed | SourceError | None:
        async with self._few:  # until its page is gone from memory
            try:
                text = await _get(self._session, f"http://{job.master}/metrics")
                async with self._parsed:
                    # in a thread: what any master may send takes the parser up to a few seconds
                    return sample_of(await asyncio.to_thread(readings_of, text), now)
            except (SourceError, Malformed) as error:  # it begins, or ends: the next look comes soon
                return error


def readings_of(text: bytes) -> list[Reading]:
    """Return the values in Prometheus's text format that samples are made of. Raises Malformed.

    Only their lines are parsed: a page of a million others would take the parser ten seconds.
    """
    lines = [line for line in text.splitlines() if WANTED.match(line)]
    if len(lines) > MOST_READINGS:
        raise Malformed(f"{len(lines)} values, of {MOST_READINGS} at most")
    try:
        families = text_string_to_metric_families(b"\n".join([*lines, b""]).decode())
        samples = (sample for family in families for sample in family.samples)
        return [Reading(each.name, each.labels, each.value) for each in samples]
    except (ValueError, KeyError, IndexError) as error:
        raise Malformed(f"its metrics cannot be read: {str(error)[:200]}") from error


class _Result(msgspec.Struct, frozen=True):
    metric: dict[str, str]
    value: tuple[float, str]


class _Vector(msgspec.Struct, frozen=True):
    result: list[_Result]


class _Answer(msgspec.Struct, frozen=True):
    data: _Vector


class Prometheus:
    """Asks a Prometheus server that scrapes the masters, with one query for some jobs at a time.

    Jobs are told apart by the labels `namespace` and `job_name`, or `exported_job`, where scraping renamed
    the master's own label `job` (the default), or `job` (with honor_labels).

    The server answers by its own clock. After a gap it repeats what it knew before for up to five minutes, as
    it does between two scrapes; values that are all the same as the last time are no sample.
    """

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self._url, self._session = url.rstrip("/"), session
        self._last: Mapping[str, int] = {}

    async def samples(self, jobs: Iterable[Target], now: datetime) -> Taken:
        """Return what the server knows that is new. Raises SourceError."""
        jobs, taken, seen = list(jobs), dict[str, Sample | Malformed](), dict[str, int]()
        for at in range(0, len(jobs), JOBS_AT_ONCE):
            piece = jobs[at : at + JOBS_AT_ONCE]
            for job, readings in (await self._readings(piece)).items():
                seen[job.uid] = hash(frozenset((r.name, r.value, *r.labels.items()) for r in readings))
                if seen[job.uid] == self._last.get(job.uid):
                    continue
                try:
                    sample: Sample | Malformed | None = sample_of(readings, now)
                except Malformed as error:
                    sample = error
                if sample:
                    taken[job.uid] = sample
        self._last = seen
        return taken

    async def _readings(self, jobs: Sequence[Target]) -> Mapping[Target, Sequence[Reading]]:
        """Return the readings of some jobs. Where these are too many for one answer, fewer are asked for."""
        try:
            body = await _get(self._session, f"{self._url}/api/v1/query", {"query": _query(jobs)})
        except TooLarge:
            half = len(jobs) // 2
            if not half:  # more nodes than a job has
                return {}
            return {**await self._readings(jobs[:half]), **await self._readings(jobs[half:])}
        try:
            results = msgspec.json.decode(body, type=_Answer).data.result
        except UNREADABLE as error:
            raise SourceError(f"Prometheus at {self._url} answers with something else: {error}") from error
        by_job: dict[tuple[str, str], list[Reading]] = {}
        for each in results:
            labels = each.metric
            name = labels.get("job_name") or labels.get("exported_job") or labels.get("job", "")
            reading = Reading(labels.get("__name__", ""), labels, _float(each.value[1]))
            by_job.setdefault((labels.get("namespace", ""), name), []).append(reading)
        return {job: by_job.get((job.namespace, job.name)) or by_job.get(("", job.name), []) for job in jobs}


def _query(jobs: Iterable[Target]) -> str:
    """Return the query for the metrics of some jobs, with no label that is not read: answers are large."""
    names = msgspec.json.encode("|".join(sorted({re.escape(job.name) for job in jobs}))).decode()
    wanted = f'__name__=~"{PREFIX}({"|".join(METRICS)})"'
    series = " or ".join(f"{{{wanted},{label}=~{names}}}" for label in JOB_LABELS)
    return f"max by (__name__, namespace, {', '.join((*JOB_LABELS, *LABELS))}) ({series})"


def _float(value: str) -> float:
    """Return a value of Prometheus's; NaN, which no reading may be, where it is none."""
    try:
        return float(value)
    except ValueError:
        return nan


async def _get(session: aiohttp.ClientSession, url: str, query: Mapping[str, str] | None = None) -> bytes:
    """Return the body of an answer, to a POST of the query if there is one. Raises SourceError.

    A redirect is not followed: a master could send Brain to what Brain alone may reach.
    """
    asked = session.post(url, data=query) if query else session.get(url, allow_redirects=False)
    try:
        async with asyncio.timeout(SECONDS), asked as response:
            body = await read_at_most(response, LARGEST)
    except TimeoutError:
        raise SourceError(f"{url} does not answer within {SECONDS:g} s") from None
    except (aiohttp.ClientError, OSError) as error:
        raise SourceError(f"{url} cannot be reached: {error}") from error
    if response.status != 200:
        raise SourceError(f"{url} answers {response.status}: {body[:200]!r}")
    if len(body) > LARGEST:
        raise TooLarge(f"{url} answers with more than {LARGEST} bytes")
    return body
