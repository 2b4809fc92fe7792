"""Shards as datasets of torch and TensorFlow, and one record at a time, from a master in this process."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import pytest

from elasticjob.api.rpc.shards import Outcome
from elasticjob.master.durable.store import Nowhere
from elasticjob.master.serving.server import Master
from elasticjob.master.state.job import Job, Spec
from elasticjob.trainer.shards import Dataset, Incomplete, IndexClient, MasterError, Shard, Shards, Way
from lab.waiting import PATIENCE

Found = TypeVar("Found")


async def with_master(tmp_path: Path, consume: Callable[[Way], Found], port: int = 0) -> tuple[Found, Job]:
    """Return what `consume` returns, called in a thread beside a master, and the job afterwards."""
    token = tmp_path / "token"
    token.write_text("secret")
    async with Master(Job(spec=Spec(job="read")), "secret", Nowhere(), port=port) as master:
        way = Way(address=master.address, token_file=str(token), node="node-0")
        return await asyncio.to_thread(consume, way), master.job


async def test_torch_reads_every_record_once(tmp_path: Path) -> None:
    from torch.utils.data import DataLoader

    from elasticjob.trainer.torch.records.shards import ShardDataset

    def consume(way: Way) -> list[int]:
        dataset = ShardDataset(
            Dataset(name="numbers", size=100, shard=7), lambda shard: shard.records, way=way
        )
        return [int(number) for batch in DataLoader(dataset, batch_size=8) for number in batch]

    numbers, job = await with_master(tmp_path, consume)
    assert sorted(numbers) == list(range(100))
    assert job.shards.datasets["numbers"].complete


WITH_PROCESSES = """
import sys
from torch.utils.data import DataLoader
from elasticjob.trainer.shards import Dataset, Way
from elasticjob.trainer.torch.records.shards import ShardDataset

numbers = ShardDataset(
    Dataset(name="numbers", size=1200, shard=80, batch=16),
    lambda shard: shard.records,
    way=Way(address=sys.argv[1], token_file=sys.argv[2], node=sys.argv[3]),
)
print(*(int(number) for batch in DataLoader(numbers, batch_size=16, num_workers=2) for number in batch))
"""


@pytest.mark.story
@pytest.mark.parametrize("nodes", [1, 2])
async def test_processes_of_dataloaders_read_every_record_once_and_wait_for_no_deadline(
    tmp_path: Path, nodes: int
) -> None:
    def consume(way: Way) -> list[int]:
        command = (sys.executable, "-c", WITH_PROCESSES, way.address, way.token_file)
        run = [
            subprocess.Popen((*command, f"node-{index}"), stdout=subprocess.PIPE, text=True)
            for index in range(nodes)
        ]
        return [int(number) for each in run for number in each.communicate(timeout=PATIENCE)[0].split()]

    numbers, job = await with_master(tmp_path, consume)
    assert sorted(numbers) == list(range(1200))
    assert job.shards.leases == 15, "no shard was dealt twice"


WITH_TENSORFLOW = """
import os, signal, sys
import tensorflow as tf
from elasticjob.trainer.shards import Dataset, Way
from elasticjob.trainer.tensorflow import shard_dataset

way = Way(address=sys.argv[1], token_file=sys.argv[2], node="node-0")

def read(name):
    numbers = Dataset(name=name, size=100, shard=20)
    return shard_dataset(numbers, lambda shard: shard.records, tf.TensorSpec((), tf.int64), way=way)

def show(name, batches, most):
    for number, batch in zip(range(most), batches):
        print(name, *batch.numpy())

tf.random.set_seed(1)
twins = {"num_parallel_calls": tf.data.AUTOTUNE, "deterministic": False}
show("whole", read("whole").shuffle(9).batch(8).prefetch(2), 99)
kept = {
    "batch": read("batch").batch(8),
    "prefetch": read("prefetch").batch(4).prefetch(tf.data.AUTOTUNE),
    "shuffle": read("shuffle").shuffle(20).batch(8).prefetch(2),
    "interleave": read("interleave").interleave(tf.data.Dataset.from_tensors, 4, **twins).batch(8),
    "map": read("map").map(lambda number: number, **twins).batch(8),
}
batches = {name: iter(each) for name, each in kept.items()}
for name, each in batches.items():
    show(name, each, 7)
sys.stdout.flush()
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.story
async def test_a_killed_worker_of_tensorflow_loses_no_record(tmp_path: Path) -> None:
    """Whatever its datasets hold. In a process of its own, as torch's compiler aborts beside TensorFlow."""

    def consume(way: Way) -> dict[str, list[int]]:
        command = (sys.executable, "-c", WITH_TENSORFLOW, way.address, way.token_file)
        run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        assert run.returncode == -signal.SIGKILL
        used: dict[str, list[int]] = {}
        for name, *numbers in map(str.split, run.stdout.splitlines()):
            used.setdefault(name, []).extend(map(int, numbers))
        for name in used.keys() - {"whole"}:
            with Shards(Dataset(name=name, size=100, shard=20), way=way) as rest:
                used[name] += [record for shard in rest for record in shard.records]
        return used

    used, _ = await with_master(tmp_path, consume)
    assert used.keys() == {"whole", "batch", "prefetch", "shuffle", "interleave", "map"}
    assert all(set(each) == set(range(100)) for each in used.values()), used
    assert all(len(each) <= 120 for each in used.values()), "more than the shard at work came again"
    assert len(used["whole"]) == 100


async def test_records_are_fetched_one_by_one_and_counted_by_number(tmp_path: Path) -> None:
    def consume(way: Way) -> list[int]:
        numbers: list[int] = []
        with IndexClient(Dataset(name="numbers", size=20, shard=6), way=way) as client:
            for index in client:
                numbers.append(index)
                if len(numbers) % 5 == 0:
                    client.done(5)
            with pytest.raises(ValueError, match="1 more"):
                client.done()
        return numbers

    numbers, job = await with_master(tmp_path, consume)
    assert numbers == list(range(20))
    assert job.shards.datasets["numbers"].applied == 20


@pytest.mark.parametrize("batch", [3, 7, 100])
async def test_clients_whose_batches_cross_shards_wait_for_no_deadline(tmp_path: Path, batch: int) -> None:
    def train(way: Way, name: str) -> list[int]:
        numbers: list[int] = []
        with IndexClient(Dataset(name="numbers", size=45, shard=2), worker=name, way=way) as client:
            begun = 0
            for index in client:
                numbers.append(index)
                begun += 1
                if begun == batch:
                    client.done(begun)
                    begun = 0
            client.done(begun)
        return numbers

    def consume(way: Way) -> list[int]:
        with ThreadPoolExecutor() as threads:
            runs = [threads.submit(train, way, name) for name in ("a", "b", "c")]
            return [number for run in runs for number in run.result(PATIENCE)]

    numbers, job = await with_master(tmp_path, consume)
    assert sorted(numbers) == list(range(45))
    assert job.shards.datasets["numbers"].applied == 45


async def test_shard_that_fails_each_time_is_named_and_all_others_are_done(tmp_path: Path) -> None:
    def consume(way: Way) -> tuple[int, str]:
        dataset, tries = Dataset(name="numbers", size=30, shard=10, retries=2), 0
        with Shards(dataset, way=way) as shards:
            try:
                for shard in shards:
                    if shard.start == 10:
                        tries += 1
                        shards.fail(shard, ValueError("no such number"))
            except Incomplete as error:
                return tries, str(error)
        raise AssertionError("the dataset claims to be complete")

    (tries, sentence), job = await with_master(tmp_path, consume)
    assert tries == 3
    bad = "[10, 20) of epoch 0 failed 3 times: ValueError: no such number"
    assert sentence == f"dataset numbers is not complete, 1 shards are poisoned: {bad}"
    assert not job.shards.datasets["numbers"].complete
    assert job.shards.datasets["numbers"].applied == 20


async def test_error_in_the_loop_fails_the_shard_at_work_alone(tmp_path: Path) -> None:
    def consume(way: Way) -> None:
        with suppress(KeyError), Shards(Dataset(name="numbers", size=100, shard=10), way=way) as shards:
            for _ in shards:
                raise KeyError("label")

    _, job = await with_master(tmp_path, consume)
    ledger = job.shards.datasets["numbers"]
    assert (ledger.failed, ledger.late) == ({0: 1}, (0,))


async def test_dataset_that_differs_from_the_registered_one_is_refused_with_the_difference(
    tmp_path: Path,
) -> None:
    def consume(way: Way) -> None:
        with Shards(Dataset(name="numbers", size=30), way=way) as shards:
            assert shards.next()
        other = Shards(Dataset(name="numbers", size=40), way=way)
        with other, pytest.raises(MasterError, match="registered with size 30, not 40"):
            other.next()

    await with_master(tmp_path, consume)


async def test_worker_that_waits_for_its_results_to_be_taken_hears_at_once_that_they_are_refused(
    tmp_path: Path,
) -> None:
    reader: list[Shards] = []

    def take(way: Way) -> int:
        reader.append(Shards(Dataset(name="numbers", size=30), way=way))
        assert reader[0].next()
        return int(way.address.rpartition(":")[2])

    def wait(way: Way) -> None:
        with Shards(Dataset(name="numbers", size=40), way=way) as other:

            def both() -> None:
                other.next()  # is refused itself where the reader has found the new master first
                reader[0].flush(PATIENCE)

            with pytest.raises(MasterError, match=r"registered with size (40, not 30|30, not 40)"):
                both()

    port, _ = await with_master(tmp_path, take)
    await with_master(tmp_path, wait, port)


class Fed:
    """Three shards at hand, and what is reported of them."""

    process, suspended = os.getpid(), False

    def __init__(self) -> None:
        self.left = [
            Shard(number=each, lease=each, epoch=0, start=10 * each, end=10 * each + 10) for each in range(3)
        ]
        self.done: list[int] = []

    @property
    def ready(self) -> bool:
        return bool(self.left)

    def next(self, *, pauses: bool) -> Shard | None:
        return self.left.pop(0) if self.left else None

    def read(self, shard: Shard) -> None:
        assert shard.number not in self.done

    def finish(self, outcome: Outcome) -> None:
        self.done.append(outcome.number)


@pytest.mark.parametrize(("unused", "expected"), [(0, [10, 20, 30]), (5, [15, 25, 30]), (25, [30, 30, 30])])
def test_shard_is_reported_once_the_loop_has_used_it_or_before_a_wait(
    unused: int, expected: list[int]
) -> None:
    shards, fed, handed = Shards(Dataset(name="d", size=30, shard=10)), Fed(), 0
    reported: list[int] = []
    shards._started = fed  # type: ignore[assignment]  # as short as can be
    for _ in shards.records(lambda shard: shard.records, unused=unused):
        handed += 1
        reported += [handed] * (len(fed.done) - len(reported))
    reported += [handed] * (len(fed.done) - len(reported))
    assert (reported, fed.done) == (expected, [0, 1, 2])
