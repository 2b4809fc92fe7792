"""The example with a coordinator that goes on until the file `may-end` is there; DI-engine runs this."""

import sys
from pathlib import Path
from typing import Any

import cartpole
from ding.worker.coordinator.solo_parallel_commander import SoloCommander

FINISH = SoloCommander.finish_collector_task


def finish(commander: Any, task: str, finished: dict[str, Any]) -> Any:
    """As DI-engine does, but no reward of an evaluation is enough while the test holds the job."""
    held = finished["eval_flag"] and not Path("may-end").exists()
    return FINISH(commander, task, {**finished, "reward_mean": 0.0} if held else finished)


if __name__ == "__main__":
    SoloCommander.finish_collector_task = finish
    cartpole.main(sys.argv[1])
