"""What a log line shows, in both forms, and that each is read back."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from elasticjob.api.logs import Entry, configure, for_people, for_programs, for_terminal, read
from tests.kit.logs import restored

NOON = datetime(2026, 11, 30, 12, 0, 0, 5000, UTC)
WHOLE = Entry(
    NOON,
    "warning",
    "lost its peers",
    "team",
    "digits",
    "digits-worker-1",
    2,
    2,
    7,
    "elasticjob.agent",
    {"s": 1.5},
)


@pytest.fixture(autouse=True)
def log_of_its_own() -> Iterator[None]:
    with restored():
        yield


@pytest.mark.parametrize(
    ("entry", "line"),
    [
        (WHOLE,
         "2026-11-30T12:00:00.005Z warning [team/digits worker-1 ranks 2-3 round 7] lost its peers s=1.5"),
        (Entry(NOON, "info", "hi"), "2026-11-30T12:00:00.005Z info hi"),
        (Entry(NOON, "info", "a\nb", job="j", rank=0, more={"why": "no\x1b[1m room"}),
         '2026-11-30T12:00:00.005Z info [j rank 0] a\\nb why="no\\\\x1b[1m room"'),
        (Entry(NOON, "error", "[x] y", exception="Traceback\n  KeyError"),
         "2026-11-30T12:00:00.005Z error [x] y\nTraceback\n  KeyError"),
    ],
)  # fmt: skip
def test_people_read_time_level_place_and_message(entry: Entry, line: str) -> None:
    assert for_people(entry) == line


def test_both_forms_are_read_back() -> None:
    assert read(for_programs(WHOLE)) == WHOLE
    found = read(for_people(WHOLE))
    assert found is not None
    assert (found.node, found.rank, found.workers, found.round) == ("digits-worker-1", 2, 2, 7)
    assert (found.level, found.message, found.time) == ("warning", "lost its peers s=1.5", NOON)
    assert read("2026-11-30T12:00:00.005Z error [x] y") == Entry(NOON, "error", "y", job="x")


@pytest.mark.parametrize(
    "line",
    [
        "", "step 1 loss 0.5", "INFO: x", "{", "{}", '{"level": 5}', '{"loss": 1}', "[" * 5000,
        '{"level": "info", "time": 3, "message": "x"}', '{"level": "info", "time": "now", "message": "x"}',
        '{"level": "info", "time": "2026-11-30T12:00:00", "message": "x"}', "2026-99-30T12:00:00Z info x",
        '{"level": [], "time": "2026-11-30T12:00:00Z", "message": "x"}', '{"level": "info", "message": "x"}',
    ],
)  # fmt: skip
def test_lines_of_scripts_are_none_of_ours(line: str) -> None:
    assert read(line) is None


def test_a_terminal_sees_the_level_of_what_is_not_usual() -> None:
    assert for_terminal(WHOLE).startswith("elasticjob digits-worker-1 ")
    assert ":00 warning: lost its peers" in for_terminal(WHOLE)


@pytest.mark.parametrize("form", ["json", "people", "xml"])
def test_a_pod_names_its_place_in_the_form_of_its_environment(form: str, tmp_path: Path) -> None:
    place = {
        "ELASTICJOB_NAMESPACE": "team",
        "ELASTICJOB_NAME": "digits",
        "ELASTICJOB_NODE": "digits-worker-0",
    }
    configure({**place, "ELASTICJOB_LOG_FORMAT": form}, file=tmp_path / "log")
    log = logging.getLogger("elasticjob.agent")
    log.info("round %d", 3, extra={"rank": 4, "round": 3, "object": "team/digits"})
    log.error("a bug", exc_info=KeyError("x"))
    first, *_ = lines = (tmp_path / "log").read_text().splitlines()
    found = read(first)
    assert found is not None
    assert (found.namespace, found.job, found.node) == ("team", "digits", "digits-worker-0")
    assert (found.rank, found.round, found.level) == (4, 3, "info")
    assert first.startswith("{") == (form == "json")
    if form == "json":
        said: dict[str, Any] = json.loads(lines[1])
        assert said["exception"].endswith("KeyError: 'x'")
        assert list(said)[:3] == ["time", "level", "message"]
        assert json.loads(first)["object"] == "team/digits"
    else:
        assert lines[-1] == "KeyError: 'x'"


def test_quiet_programs_write_warnings_only(tmp_path: Path) -> None:
    configure(quiet=True, file=tmp_path / "log")
    log = logging.getLogger("elasticjob.kube.controller.controller")
    log.info("cache is in step")
    log.error("reconcile failed", extra={"key": "ml/digits-0", "error": "no space left"})
    (line,) = (tmp_path / "log").read_text().splitlines()
    assert line.endswith('error reconcile failed key=ml/digits-0 error="no space left"')
