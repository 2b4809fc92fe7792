"""A worker without torch that says where it is: steps whose collective is a folder of files.

What it does is set by files beside them: `stuck-RANK` blocks that rank in its step, `reading-RANK` there but
while it waits for records, `outside-RANK` between two steps. It ends when there is a file `end`.
"""

import json
import os
import sys
import threading
import time
from pathlib import Path

from elasticjob.trainer.link import pulse
from elasticjob.trainer.link.pulse import Phase

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
FOLDER = Path(sys.argv[1])
MEET = FOLDER / f"world-{os.environ['MASTER_PORT']}"
SECONDS = float(sys.argv[2])


def stuck() -> None:
    """Wait for what never comes."""
    threading.Event().wait()


def wait_while(what: str) -> None:
    """Wait as long as there is a file for this rank."""
    while (FOLDER / f"{what}-{RANK}").exists():
        time.sleep(0.01)


def reduce(step: int) -> bool:
    """Wait until every rank is here; return whether rank 0 says that this was the last step."""
    mine, new = MEET / f"{step}-{RANK}", MEET / f".{step}-{RANK}"
    new.write_text("end" if (FOLDER / "end").exists() else "")
    new.rename(mine)
    while not all((MEET / f"{step}-{rank}").exists() for rank in range(SIZE)):
        time.sleep(0.005)
    return (MEET / f"{step}-0").read_text() == "end"


def main() -> None:
    page = pulse.from_environment(os.environ)
    assert page is not None
    MEET.mkdir(exist_ok=True)
    page.say(Phase.WAITING)
    reduce(0)
    step, last = 0, False
    while not last:
        step += 1
        page.say(Phase.READING)
        wait_while("reading")
        page.say(Phase.COMPUTING)
        began = time.monotonic()
        if (FOLDER / f"stuck-{RANK}").exists():
            stuck()
        time.sleep(SECONDS)
        page.say(Phase.REDUCING, busy=time.monotonic() - began)
        last = reduce(step)
        page.say(Phase.OUTSIDE, step=step, reduced=time.monotonic())
        print(json.dumps({"pid": os.getpid(), "rank": RANK, "step": step, "at": time.time()}), flush=True)
        wait_while("outside")


main()
