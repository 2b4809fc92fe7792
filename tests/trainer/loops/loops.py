"""LOOPS: each way to train, its script, and which laws it promises to keep; the docs have this table."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.trainer.loops import runs
from tests.trainer.loops.runs import Run

LAWS: Final = {
    "code": "exit code 0 after the last line",
    "own-error": "an error of the step's own ends the job with that error",
    "other-data": "other data, seed, batch or order within an epoch are refused",
    "once": "each record counts once, wherever in a step a worker is killed",
    "repeated": "a step that comes again begins with the state of its beginning",
    "long": "a step of any length counts once",
    "stop": "`break` is saved, and the script's export is there",
    "damaged": "a damaged newest checkpoint: the one before is taken, and the log says so",
    "failed-save": "a save that fails is told and tried again, and training goes on",
    "half": "sums of half precision are as exact as their type",
    "newcomer": "a worker that joins with another model fails alone",
    "undisturbed": "killed or not, the result is that of one undisturbed process",
    "arguments": "wrong arguments are refused where they are given",
}
"""The laws, by name."""


@dataclass(frozen=True)
class Loop:
    """A way to train. It keeps all laws but those that it does `not_promise`, each with the reason.

    `exact`: killed or not, results are equal bit for bit. `doubles`: the records that may count twice for a
    worker that is killed. `serve` is the module of its servers, if it has some, `state` the program that
    prints how often each record is in their newest checkpoint, if the script does not say so.
    """

    name: str
    title: str
    script: str
    not_promised: dict[str, str]
    exact: bool = False
    doubles: int = 0
    serve: str = ""
    state: str = ""
    long: float = 2.0
    arguments: Sequence[str] = ()
    changes: Sequence[str] = ("records", "seed", "batch", "sampler")

    @property
    def promises(self) -> list[str]:
        """The laws that it keeps."""
        return [law for law in LAWS if law not in self.not_promised]

    def run(self, folder: Path, *arguments: str, restarts: int | None = None, **more: Any) -> Run:
        """Run it with two workers."""
        if self.serve:
            more.pop("nodes", None)
            given = [*self.arguments, *arguments]
            run = runs.with_servers(self.script, self.serve, folder, given, **more)
            if self.state and any((folder / "kept").iterdir()):
                command = (sys.executable, "-c", self.state, str(folder / "kept"))
                seen = json.loads(
                    subprocess.check_output(command, text=True, stderr=subprocess.PIPE).splitlines()[-1]
                )
                (folder / "lines" / "state.jsonl").write_text(json.dumps({"end": {"seen": seen}, "rank": -1}))
            return run
        flags = [] if restarts is None else [f"--max-restarts={restarts}"]
        more.pop("goes_on", None)
        return runs.with_agents(self.script, folder, [*self.arguments, *arguments], flags=flags, **more)

    def alone(self, folder: Path, *arguments: str) -> Run:
        """Run it in one process."""
        return runs.alone(self.script, folder, [*self.arguments, *arguments])


SEEN: Final = """
import json, sys, tensorflow as tf
found = tf.train.load_checkpoint(tf.train.latest_checkpoint(sys.argv[1]))
print(json.dumps(found.get_tensor("seen")[:, 0].tolist()))
"""
OF_DDP: Final = "gradients are averaged by torch's DistributedDataParallel, in their own type"
RESTARTED: Final = "all workers are started again when one is lost, so there is none that lives on"
REPEATS: Final = "no step is repeated in a process that lives on: all workers begin again from a copy"
MAY: Final = "each record may count twice"
ASYNCHRONOUS: Final = "workers do not step together: the order of updates is not defined"
OF_SERVERS: Final = "the state is on servers; a batch that comes again is a new one to the script"
PLAIN: Final = {"half": OF_DDP, "newcomer": RESTARTED, "repeated": REPEATS}

LOOPS: Final = (
    Loop("elastic", "`Elastic`", "with_elastic.py", {}),
    Loop("sharded", "`Elastic` and `fully_shard`", "with_elastic.py",
         {"half": "gradients within a node are averaged by fully_shard, in the type of its policy"},
         arguments=("--kind=sharded",)),
    Loop("checkpoint", "`Checkpoint`", "with_checkpoint.py", PLAIN, exact=True),
    Loop("huggingface", "Hugging Face", "with_huggingface.py", PLAIN, exact=True),
    Loop("lightning", "Lightning", "with_lightning.py", PLAIN, exact=True),
    Loop("accelerate", "accelerate", "with_accelerate.py", PLAIN, exact=True),
    Loop("jax", "JAX", "with_jax.py", {}, changes=("records", "seed", "batch", "shuffle")),
    Loop("store", "the store", "with_store.py", {"repeated": OF_SERVERS, "undisturbed": ASYNCHRONOUS},
         serve="elasticjob.trainer.store.serve", arguments=("--pace=0.1", "--within=0.002"),
         changes=("records", "seed", "batch", "shuffle")),
    Loop("tensorflow", "TensorFlow over servers", "with_tensorflow.py",
         {"repeated": OF_SERVERS, "undisturbed": ASYNCHRONOUS, "half": "TensorFlow's own sums"},
         serve="elasticjob.trainer.tensorflow.serve", state=SEEN, doubles=8, long=70.0,
         arguments=("--pace=0.1", "--within=0.002"), changes=("records", "seed", "batch", "shuffle")),
)  # fmt: skip


def table() -> str:
    """Return the table of promises as the docs have it, and below it why a law is not promised."""
    rows = [["", *(loop.title for loop in LOOPS)], ["---"] * (len(LOOPS) + 1)]
    rows += [
        [said, *("–" if law in loop.not_promised else "yes" for loop in LOOPS)] for law, said in LAWS.items()
    ]
    lines = [f"| {' | '.join(row)} |".replace("|  |", "| |") for row in rows]
    whys: dict[tuple[str, str], list[str]] = {}
    for loop in LOOPS:
        for law, why in loop.not_promised.items():
            whys.setdefault((law, why), []).append(loop.title)
    reasons = [f"- {LAWS[law]} ({', '.join(titles)}): {why}." for (law, why), titles in whys.items()]
    doubles = [
        f"- {loop.title}: of the batch in which a worker is killed, {MAY}." for loop in LOOPS if loop.doubles
    ]
    return "\n".join([*lines, "", *reasons, *doubles, ""])
