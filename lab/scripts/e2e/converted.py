"""In place of the script of a converted job: notes what it was given, and waits for the world meant."""

import json
import os
import signal
import sys
import time
from pathlib import Path

WORLD = os.environ.get("WORLD_SIZE")
facts = {
    "node": os.environ["ELASTICJOB_NODE"],
    "role": os.environ["ELASTICJOB_ROLE"],
    "rank": int(os.environ["RANK"]) if WORLD else None,
    "world": int(WORLD) if WORLD else None,
    "arguments": sys.argv[1:],
    "environment": dict(os.environ),
    "mounts": [Path(each).is_dir() for each in os.environ["CONVERTED_MOUNTS"].split()],
}
place = Path(os.environ["CONVERTED_FOLDER"]) / f"{facts['node']}.{facts['rank']}.{os.getpid()}"
place.with_suffix(".part").write_text(json.dumps(facts))
place.with_suffix(".part").rename(place.with_suffix(".json"))
if facts["role"] == "ps":
    signal.sigwait({signal.SIGTERM})
while len({path.name.partition(".")[0] for path in place.parent.glob("*.json")}) < int(
    os.environ["CONVERTED_PODS"]
):
    time.sleep(0.1)  # a job of servers ends with its workers
if WORLD and os.environ["CONVERTED_WORLD"] != WORLD:  # nodes that come later begin another round
    signal.alarm(60)
    signal.sigwait({signal.SIGTERM})
