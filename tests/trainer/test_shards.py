"""Consumers of shards: real processes, a real master, and kills of both."""

from __future__ import annotations

import random
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elasticjob.trainer.shards import Dataset, Shards
from lab.jobs.training.consumers import MASTER, consuming
from lab.waiting import PATIENCE

WORKERS = ["0", "1", "2"]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"size": -1}, "dataset 'd': Expected `int` >= 0 - at `$.size`"),
        ({"size": 2.5}, "Expected `int`, got `float` - at `$.size`"),
        ({"epochs": -1}, "`$.epochs`"),
        ({"seed": "a"}, "Expected `int`, got `str` - at `$.seed`"),
        ({"seed": np.float32(1)}, "Expected `int`, got `object` - at `$.seed`"),
        ({"shuffle": "yes"}, "Expected `bool`, got `str` - at `$.shuffle`"),
        ({"name": ""}, "dataset '': Expected `str` of length >= 1 - at `$.name`"),
    ],
)
def test_a_dataset_that_no_master_takes_is_refused_where_it_is_given(
    given: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        Shards(Dataset(**{"name": "d", **given}))


def test_numbers_of_numpy_are_numbers_of_a_dataset() -> None:
    given: Any = {"size": np.int64(8), "seed": np.uint8(3)}
    assert Shards(Dataset(name="d", **given)).dataset == Dataset(name="d", size=8, seed=3)
    with pytest.raises(TypeError, match="the data is a list: give a Dataset"):
        Shards(["d"])  # type: ignore[arg-type]  # what a script without types may give


@pytest.mark.parametrize("seed", [1])
def test_random_kills_of_consumers_and_master_lose_no_record_and_double_none(
    tmp_path: Path, seed: int
) -> None:
    dataset = Dataset(name="lines", splitter="text", size=2000, shard=7, epochs=2, shuffle=True)
    chance = random.Random(seed)
    with consuming(tmp_path, dataset, WORKERS) as job:
        done = 0
        for turn in range(6):
            done = job.outputs + chance.randrange(20, 80)
            job.wait_for(done)
            if turn % 3 == 2:
                job.kill(MASTER)
            if turn % 3 != 2 or chance.random() < 0.5:
                job.kill(chance.choice(WORKERS))
        for consumer in job.consumers:
            consumer.join(PATIENCE)
            assert consumer.exitcode == 0, (job.status(), job.consumers)
        standing = job.status()["datasets"][0]
        assert standing["complete"]
        assert standing["records"] == 4000
        counted = Counter(line for lines in job.results().values() for line in lines)
    expected = {f"{epoch} {record}" for epoch in range(2) for record in range(2000)}
    missing, doubled = expected - counted.keys(), [line for line, count in counted.items() if count > 1]
    assert not missing
    assert not doubled
