"""Asynchronous gradient descent over the servers: `python worker.py RECORDS`. Each record is one update."""

from __future__ import annotations

import os
import sys
import time

import numpy as np
from store import PARTS, SIZE, Read, Update, ask

from elasticjob.trainer.parameters import Following, way_of
from elasticjob.trainer.shards import Dataset, Shards

way = way_of(os.environ)
name, number = os.environ.get("POD_NAME", "worker"), 0
data = Dataset(name="records", size=int(sys.argv[1]), shard=10)
with Following(way=way) as servers, Shards(data, way=way) as shards:
    for shard in shards:
        for record in shard.records:
            part, number = record % PARTS, number + 1
            while True:  # until one cluster of servers has counted it
                servers.at_boundary()
                try:
                    address = servers.addresses[part % len(servers.addresses)]
                    found = ask(address, Read(part=part)).part
                    values = np.frombuffer(found.values) if found else np.zeros(SIZE)
                    delta = 0.01 * (record / PARTS - values)
                    delta[0] = 1.0  # the first value counts the updates
                    update = Update(servers.version, part, name, number, delta.tobytes())
                    if not ask(address, update).refused:
                        break
                except OSError:
                    servers.wait_for_change(1.0)
            time.sleep(0.005)
print(f"{name} made {number} updates")
