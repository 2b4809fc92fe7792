"""The record of steps, read while it is written."""

from __future__ import annotations

from pathlib import Path

from elasticjob.cli.story.steps import Step
from elasticjob.cli.story.watched import Record

ONE = b'{"at":1.5,"round":1,"step":1,"world":2,"loss":2.25}\n'
TWO = b'{"at":2.5,"round":1,"step":2,"world":2}\n'


def test_steps_are_read_once_and_half_lines_later(tmp_path: Path) -> None:
    file = tmp_path / "steps.jsonl"
    record = Record(file)
    assert list(record.new()) == []
    file.write_bytes(ONE + TWO[:10])
    assert list(record.new()) == [Step(at=1.5, round=1, step=1, world=2, loss=2.25)]
    assert list(record.new()) == []
    file.write_bytes(ONE + TWO)
    assert list(record.new()) == [Step(at=2.5, round=1, step=2, world=2)]
