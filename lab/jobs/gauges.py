"""Resources of the operator's process: memory, files, connections, tasks; and a plot over time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import aiohttp
import psutil
from prometheus_client.parser import text_string_to_metric_families

MIB = 1 << 20


@dataclass(frozen=True)
class Sample:
    """One moment, `at` seconds after the start; `wrong`: jobs that were not as specified then.

    Connections are those to the API server; `inbound` is what others keep open to us, webhooks and metrics:
    as many as they like, with a file and a task each.
    """

    at: float
    rss: int
    files: int
    connections: int
    inbound: int
    threads: int
    tasks: int
    jobs: int
    wrong: int

    @property
    def mib(self) -> float:
        return self.rss / MIB


async def metrics_of(session: aiohttp.ClientSession, url: str) -> dict[str, float]:
    """The process' own figures, summed over their labels."""
    async with session.get(f"{url}/metrics") as answer:
        text = await answer.text()
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found[sample.name] = found.get(sample.name, 0.0) + sample.value
    return found


def held(pid: int) -> tuple[int, int, int, int, int]:
    """RSS, open files, connections to others, connections of others to us, threads."""
    process = psutil.Process(pid)
    with process.oneshot():
        rss, threads, files = process.memory_info().rss, process.num_threads(), process.num_fds()
    found = process.net_connections("tcp")
    ours = {each.laddr.port for each in found if each.status == psutil.CONN_LISTEN}
    inbound = sum(each.laddr.port in ours and each.status != psutil.CONN_LISTEN for each in found)
    return rss, files, len(found) - inbound - len(ours), inbound, threads


def growth(samples: Sequence[Sample]) -> tuple[float, float]:
    """MiB in the middle third and in the last third of a time: medians."""
    third = max(1, len(samples) // 3)
    return _median(samples[third : 2 * third] or samples), _median(samples[2 * third :] or samples)


def _median(samples: Sequence[Sample]) -> float:
    values = sorted(sample.mib for sample in samples)
    return values[len(values) // 2]


BLOCKS = " ▁▂▃▄▅▆▇█"


def line(values: Sequence[float], width: int = 100) -> str:
    """A row of blocks from 0 to the largest value; each block shows the largest of its values."""
    count = min(width, len(values))
    edges = [round(n * len(values) / count) for n in range(count + 1)] if count else []
    shown = [max(values[low:high]) for low, high in pairwise(edges)]
    top = max([*shown, 1e-9])
    return "".join(BLOCKS[round(value / top * (len(BLOCKS) - 1))] for value in shown)
