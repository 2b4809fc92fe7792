"""How long an agent that ends waits for its master to hear of it."""

from __future__ import annotations

import pytest

from elasticjob.trainer.agent.decide import LEFT, Exit
from elasticjob.trainer.agent.loop import last_calls


@pytest.mark.parametrize("reason", ["Completed", "WorkerFailed"])
def test_who_leaves_waits_a_second_and_who_has_a_result_longer(reason: str) -> None:
    assert last_calls(Exit(0, LEFT, "")) == 1.0 < last_calls(Exit(0, reason, ""))
