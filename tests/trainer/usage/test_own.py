"""A process that no agent looks at says itself what it uses."""

from __future__ import annotations

from elasticjob.trainer.usage.own import Own


def test_a_process_without_an_agent_samples_itself_once_a_second() -> None:
    now = [0.0]
    own = Own({}, lambda: now[0])
    assert own.now() is None  # cores are an average over time
    now[0] = 1.0
    first = own.now()
    assert first is not None
    assert first.memory > 1 << 20
    now[0] = 1.9
    assert own.now() is first
    now[0] = 2.0
    assert own.now() is not first


def test_what_an_agent_reports_is_not_said_twice() -> None:
    now = [0.0]
    own = Own({"ELASTICJOB_CHANNEL_FD": "5"}, lambda: now[0])
    now[0] = 1.0
    assert own.now() is None
