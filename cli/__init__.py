"""The program `elasticjob`: one module per command, and what joins programs on one machine.

The first process of a container does not get signals that it has no handler for. Until a command has its own,
this one ends it: a pod that is deleted while it starts would otherwise last for all of its grace period.
"""

import os
import signal
import sys

if os.getpid() == 1:
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
