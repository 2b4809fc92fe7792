"""The examples over the store learn, on two servers and two workers, one of each killed on the way."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

import elasticjob
from elasticjob.api.rpc import environment as names
from elasticjob.trainer.shards import Dataset
from elasticjob.trainer.store import read
from tests.kit.training.consumers import consuming
from tests.kit.waiting import PATIENCE

EXAMPLES = Path(elasticjob.__file__).resolve().parent.parent / "examples"
SERVE = ("-m", "elasticjob.trainer.store.serve")


@pytest.mark.story
@pytest.mark.parametrize(
    ("script", "arguments", "at_most"),
    [("parameters", ("--epochs=4",), 0.6), ("keras", ("--records=60000", "--epochs=4"), 0.6)],
)
def test_example_learns(tmp_path: Path, script: str, arguments: tuple[str, ...], at_most: float) -> None:
    with consuming(tmp_path, Dataset(name="none", size=1), []), ExitStack() as started:

        def start(node: str, *command: str) -> subprocess.Popen[bytes]:
            environment = os.environ | {
                names.MASTER: (tmp_path / "address").read_text(),
                names.TOKEN_FILE: str(tmp_path / "token"),
                names.NODE: node,
                names.POD_NAME: node,
                names.INDEX: node[-1],
            }
            with output.open("ab") as file:
                process = subprocess.Popen((sys.executable, *command), env=environment, stdout=file)
            started.callback(process.wait)
            started.callback(process.kill)
            return process

        def learning(node: str) -> subprocess.Popen[bytes]:
            return start(node, str(EXAMPLES / script / "train.py"), *arguments, "--save-every=1000")

        kept, output = tmp_path / "kept", tmp_path / "output"
        servers = [start(f"ps-{index}", *SERVE, str(kept)) for index in range(2)]
        first, second = learning("worker-0"), learning("worker-1")
        until(lambda: "batch 50" in output.read_text())
        servers[0].kill()
        second.kill()
        start("ps-0", *SERVE, str(kept))
        last = learning("worker-1")
        assert (first.wait(2 * PATIENCE), last.wait(PATIENCE)) == (0, 0)
        said = output.read_text()
    losses = [float(loss) for loss in re.findall(r"batch \d+: loss ([\d.]+)", said)]
    assert min(losses) < at_most, said
    ids, _ = read(kept, "users")
    assert len(ids) > 1_000


def until(seen: Callable[[], bool]) -> None:
    """Wait for what other processes do."""
    for _ in range(int(PATIENCE / 0.05)):
        if seen():
            return
        threading.Event().wait(0.05)
    raise AssertionError("it did not come to be")
