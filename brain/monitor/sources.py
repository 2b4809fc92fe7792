"""Where the metrics of masters are read: from each master itself, or from a Prometheus server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final, Protocol

import aiohttp
import msgspec
from prometheus_client.parser import text_string_to_metric_families

from elasticjob.api.rpc.unreadable import UNREADABLE
from elasticjob.brain.history import Sample
from elasticjob.brain.monitor.samples import PREFIX, Reading, sample_of
from elasticjob.kube.http.bodies import read_bounded

SECONDS: Final = 5.0
"""The longest time of a request."""
LARGEST: Final = 8 * 1024 * 1024
"""Bytes of an answer."""
AT_ONCE: Final = 32


class SourceError(Exception):
    """The metrics cannot be read; the message says whose, and why."""


class Watched(msgspec.Struct, frozen=True):
    """A job whose samples are wanted: its uid, its names, and host:port of its master, "" if it has none."""

    uid: str
    namespace: str
    name: str
    master: str = ""


class Source(Protocol):
    """Reads samples of jobs. A job that cannot be read is left out; SourceError if none can."""

    async def samples(self, jobs: Iterable[Watched], now: datetime) -> Mapping[str, Sample]:
        """Return a sample for each job that trains, by uid."""
        ...


class Masters:
    """Asks each master for its /metrics."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session
        self._few = asyncio.Semaphore(AT_ONCE)

    async def samples(self, jobs: Iterable[Watched], now: datetime) -> Mapping[str, Sample]:
        """Return a sample for each job whose master answers."""
        watched = [job for job in jobs if job.master]
        found = await asyncio.gather(*(self._sample(job, now) for job in watched))
        return {job.uid: sample for job, sample in zip(watched, found, strict=True) if sample}

    async def _sample(self, job: Watched, now: datetime) -> Sample | None:
        try:
            async with self._few:
                text = await _get(self._session, f"http://{job.master}/metrics", {})
            return sample_of(readings_of(text.decode()), now)
        except (SourceError, ValueError):  # it begins, or ends: the next look comes soon
            return None


def readings_of(text: str) -> Iterable[Reading]:
    """Return the values in Prometheus's text format. Raises ValueError."""
    for family in text_string_to_metric_families(text):
        for each in family.samples:
            if each.name.startswith(PREFIX):
                yield Reading(each.name, each.labels, each.value)


class _Result(msgspec.Struct, frozen=True):
    metric: dict[str, str]
    value: tuple[float, str]


class _Vector(msgspec.Struct, frozen=True):
    result: list[_Result]


class _Answer(msgspec.Struct, frozen=True):
    data: _Vector


class Prometheus:
    """Asks a Prometheus server that scrapes the masters, with one query for all of them.

    Jobs are told apart by the labels `namespace` and `job_name`, or `exported_job`, where scraping renamed
    the master's own label `job` (the default), or `job` (with honor_labels).
    """

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self._url, self._session = url.rstrip("/"), session

    async def samples(self, jobs: Iterable[Watched], now: datetime) -> Mapping[str, Sample]:
        """Return a sample for each job that the server knows."""
        asked = {"query": f'{{__name__=~"{PREFIX}.+"}}', "time": str(now.timestamp())}
        body = await _get(self._session, f"{self._url}/api/v1/query", asked)
        try:
            results = msgspec.json.decode(body, type=_Answer).data.result
        except UNREADABLE as error:
            raise SourceError(f"Prometheus at {self._url} answers with something else: {error}") from error
        by_job: dict[tuple[str, str], list[Reading]] = {}
        for each in results:
            labels = each.metric
            name = labels.get("job_name") or labels.get("exported_job") or labels.get("job", "")
            reading = Reading(labels.get("__name__", ""), labels, float(each.value[1]))
            by_job.setdefault((labels.get("namespace", ""), name), []).append(reading)
        found: dict[str, Sample] = {}
        for job in jobs:
            readings = by_job.get((job.namespace, job.name)) or by_job.get(("", job.name), [])
            if sample := sample_of(readings, now):
                found[job.uid] = sample
        return found


async def _get(session: aiohttp.ClientSession, url: str, query: Mapping[str, str]) -> bytes:
    """Return the body of an answer. Raises SourceError."""
    try:
        async with asyncio.timeout(SECONDS), session.get(url, params=query) as response:
            body = await read_bounded(response, LARGEST)
    except TimeoutError:
        raise SourceError(f"{url} does not answer within {SECONDS:g} s") from None
    except (aiohttp.ClientError, OSError) as error:
        raise SourceError(f"{url} cannot be reached: {error}") from error
    if response.status != 200:
        raise SourceError(f"{url} answers {response.status}: {body[:200]!r}")
    if len(body) > LARGEST:
        raise SourceError(f"{url} answers with more than {LARGEST} bytes")
    return body
