"""Copies the agent into a volume: the command of the image elasticjob/agent."""

import os
import shutil
import sys
import time

began = time.monotonic()
source, target = "/agent", sys.argv[1]
for name in sorted(os.listdir(source)):
    there = os.path.join(target, name)
    if os.path.isdir(there):
        shutil.rmtree(there)  # of a container that was stopped amid its copying
    path = os.path.join(source, name)
    shutil.copytree(path, there) if os.path.isdir(path) else shutil.copy(path, there)
print(f"the agent is in {target} after {time.monotonic() - began:.1f} s")
