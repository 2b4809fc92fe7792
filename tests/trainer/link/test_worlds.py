"""Messages of a worker to its agent."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

from elasticjob.api.rpc.nodes import Progress
from elasticjob.trainer.link.channel import FD, LIMIT, Advance, Hello, encode
from elasticjob.trainer.link.worlds import shorten

TWICE = """
import os
from elasticjob.trainer.link.line import Line
Line(os.environ)
child = os.fork()
if child == 0:
    Line(os.environ)  # another process, whose line was not opened
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
Line(os.environ)
"""


def test_a_report_that_is_too_long_loses_its_metrics() -> None:
    metrics: dict[str, float | None] = {
        f"gradient norm of layer {number}": number / 3 for number in range(2000)
    }
    long = Advance(round=1, progress=Progress(step=7, metrics=metrics), seconds=0.5)
    assert len(encode(long)) > LIMIT
    assert shorten(long) == Advance(round=1, progress=Progress(step=7), seconds=0.5)
    for short in (Hello(), Advance(round=1, progress=Progress(step=7, metrics={"loss": 0.5}))):
        assert shorten(short) is short


def test_a_second_loop_in_a_process_is_refused_before_the_agent_hears_of_it() -> None:
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            theirs.set_inheritable(True)
            ran = subprocess.run(
                [sys.executable, "-c", TWICE],
                env={**os.environ, FD: str(theirs.fileno())},
                pass_fds=[theirs.fileno()],
                capture_output=True,
                text=True,
                check=False,
            )
        assert ran.returncode == 1
        assert "there is one Elastic in a process under `elasticjob run`" in ran.stderr
        assert "put all phases into its loop, by step.epoch" in ran.stderr
        assert ours.recv(1 << 16) == 2 * encode(Hello()), "one of each process"
