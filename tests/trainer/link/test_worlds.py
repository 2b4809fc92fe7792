"""Messages of a worker to its agent."""

from __future__ import annotations

from elasticjob.api.rpc.nodes import Progress
from elasticjob.trainer.link.channel import LIMIT, Advance, Hello, encode
from elasticjob.trainer.link.worlds import shortened


def test_a_report_that_is_too_long_loses_its_metrics() -> None:
    metrics: dict[str, float | None] = {
        f"gradient norm of layer {number}": number / 3 for number in range(2000)
    }
    long = Advance(round=1, progress=Progress(step=7, metrics=metrics), seconds=0.5)
    assert len(encode(long)) > LIMIT
    assert shortened(long) == Advance(round=1, progress=Progress(step=7), seconds=0.5)
    for short in (Hello(), Advance(round=1, progress=Progress(step=7, metrics={"loss": 0.5}))):
        assert shortened(short) is short
