"""Parameter servers that may change while they train, for plain Python: no framework is needed.

A process that serves values:

    with Serving("10.0.0.7:7000", values) as serving:  # values has take_over(move), use(version, servers)
        serving.wait()                                 # until the job ends

A process that trains with them:

    with Following() as servers:
        for batch in data:
            servers.at_boundary()                      # between two steps, with nothing under way: may wait
            train(batch, servers.addresses, servers.version)

When servers come, go, move or are lost, every worker stops at its boundary, the next servers take the values
over, and then all go on with them: no update is lost or made twice, if each is sent with `version` and a
server refuses those of another version than its own.

A save stops the workers in the same way, for as long as the servers copy their values in memory; the position
of the datasets is that of the stop. If values are lost, all servers go back to the last checkpoint that
counts, and the datasets go back with them: `restored` has changed after `at_boundary`.
"""

from __future__ import annotations

from elasticjob.api.rpc.parameters import Kept
from elasticjob.trainer.link.address import NoMaster
from elasticjob.trainer.servers.following import Following
from elasticjob.trainer.servers.serving import Checkpoints, Gone, Move, Serving, Values

__all__ = ["Checkpoints", "Following", "Gone", "Kept", "Move", "NoMaster", "Serving", "Values"]
