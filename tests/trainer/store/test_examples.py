"""The examples over the store learn, on two servers and two workers, one of each killed on the way."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from elasticjob.trainer.shards import Dataset
from elasticjob.trainer.store import read
from lab.jobs.training.consumers import consuming
from lab.paths import EXAMPLES, SCRIPTS
from lab.programs.training import environment_of
from lab.waiting import PATIENCE, wait_until

COUNTER = SCRIPTS / "e2e" / "seen.py"
SERVE = ("-m", "elasticjob.trainer.store.serve")


class Processes(ExitStack):
    """The processes of a job, as users start them; all that they print is in `output`."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder, self.output = folder, folder / "output"

    def start(self, node: str, *command: str) -> subprocess.Popen[bytes]:
        """Start a pod's process, which is killed at the end at the latest."""
        environment = environment_of(node, (self.folder / "address").read_text(), self.folder, {})
        with self.output.open("ab") as file:
            process = subprocess.Popen(
                (sys.executable, *command), env=environment, stdout=file, stderr=subprocess.STDOUT
            )
        self.callback(process.wait)
        self.callback(process.kill)
        return process


def test_processes_end_with_the_codes_that_users_expect(tmp_path: Path) -> None:
    """A worker with 0 after its last line, whose error has a code of its own; servers by SIGTERM."""
    (tmp_path / "gate").touch()
    broken = tmp_path / "broken.py"
    broken.write_text(COUNTER.read_text().replace("batch.push(", "raise RuntimeError('my own')  # "))
    with consuming(tmp_path, Dataset(name="none", size=1), []), Processes(tmp_path) as job:
        servers = [job.start(f"ps-{index}", *SERVE, str(tmp_path / "kept")) for index in range(2)]
        failing = job.start("worker-1", str(broken), "100", str(tmp_path))
        assert failing.wait(PATIENCE) == 1
        assert "RuntimeError: my own" in job.output.read_text()
        worker = job.start("worker-0", str(COUNTER), "100", str(tmp_path))
        assert worker.wait(PATIENCE) == 0, job.output.read_text()
        for each in servers:
            each.terminate()
        assert [each.wait(PATIENCE) for each in servers] == [143, 143]
    assert json.loads((tmp_path / "counts").read_text()) == [1.0] * 100
    assert job.output.read_text().count("Traceback") == 1, job.output.read_text()
    assert len(read(tmp_path / "kept", "seen")[0]) == 100


@pytest.mark.story
@pytest.mark.parametrize(
    ("script", "arguments", "at_most"),
    [("parameters", ("--epochs=4",), 0.6), ("keras", ("--records=60000", "--epochs=4"), 0.6)],
)
def test_example_learns(tmp_path: Path, script: str, arguments: tuple[str, ...], at_most: float) -> None:
    with consuming(tmp_path, Dataset(name="none", size=1), []), Processes(tmp_path) as job:
        start = job.start

        def learning(node: str) -> subprocess.Popen[bytes]:
            return start(node, str(EXAMPLES / script / "train.py"), *arguments, "--save-every=1000")

        kept, output = tmp_path / "kept", job.output
        servers = [start(f"ps-{index}", *SERVE, str(kept)) for index in range(2)]
        first, second = learning("worker-0"), learning("worker-1")
        wait_until(lambda: "batch 50" in output.read_text())
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
