"""How many leases and results a second the ledger takes, in process: `python -m benchmarks.services.ledger`.

Each pair is two whole turns of the master (`dispatch.handle`), one shard at a time; the last column asks for
and reports eight at a time. No network, no snapshot.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from statistics import median
from time import perf_counter

from elasticjob.api.rpc.shards import Consumer, Dataset, Lease, Open, Outcome, Result
from elasticjob.master.handlers import dispatch, shards
from elasticjob.master.shards import book
from elasticjob.master.state.job import Job, Spec

NOW = datetime(2026, 1, 1, tzinfo=UTC)
PAIRS, REPEATS = 20_000, 5
CONSUMERS = (1, 100, 1_000, 10_000)


def consuming(consumers: int) -> tuple[Job, list[Consumer]]:
    """Return a job of which so many consumers, ten on a node, hold one shard each."""
    who = [Consumer(node=f"node-{i // 10}", worker=str(i % 10), life=1) for i in range(consumers)]
    dataset = Dataset(name="records", size=10**12)
    job = Job(spec=Spec(job="ledger"), gathering=NOW)
    for consumer in who:
        job = dispatch.handle(job, Open(consumer=consumer, dataset=dataset), NOW).job
    job = job.but(shards=book.saved(job.shards, job.shards.mark))
    for consumer in who:
        job = shards.lease(job, Lease(consumer=consumer, dataset="records"), NOW).job
    return job, who


def pairs_a_second(consumers: int, at_once: int, *, whole: bool) -> float:
    """Return lease + result pairs per second; `whole` turns include the job's verdict."""
    job, who = consuming(consumers)
    lease = dispatch.handle if whole else shards.lease
    result = dispatch.handle if whole else shards.result
    leases = [Lease(consumer=each, dataset="records", want=1 + at_once) for each in who]
    began = perf_counter()
    for turn in range(PAIRS // at_once):
        request = leases[turn % consumers]
        dealt = lease(job, request, NOW)
        assert dealt.reply is not None
        done = tuple(
            Outcome(number=shard.number, lease=shard.lease) for shard in dealt.reply.shards[-at_once:]
        )
        answer = Result(consumer=request.consumer, dataset="records", outcomes=done)
        job = result(dealt.job, answer, NOW).job
    return PAIRS / (perf_counter() - began)


def main() -> None:
    """Print one table."""
    print(f"lease + result a second, in process; load {os.getloadavg()[0]:.1f}; medians of {REPEATS}")
    print(f"{'consumers':>10} {'handlers':>12} {'whole turns':>12} {'8 at once':>12}")
    for consumers in CONSUMERS:
        runs = [
            median(pairs_a_second(consumers, at_once, whole=whole) for _ in range(REPEATS))
            for at_once, whole in ((1, False), (1, True), (8, True))
        ]
        print(f"{consumers:>10,} " + " ".join(f"{run:>12,.0f}" for run in runs))


if __name__ == "__main__":
    main()
