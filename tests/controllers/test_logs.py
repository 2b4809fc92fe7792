"""What a log line shows."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from elasticjob.controllers.logs import configure
from tests.kit.logs import restored


@pytest.fixture(autouse=True)
def log_of_its_own() -> Iterator[None]:
    with restored():
        yield


def test_an_error_says_in_one_line_what_failed_and_why(tmp_path: Path) -> None:
    configure(quiet=True, file=tmp_path / "log")
    log = logging.getLogger("elasticjob.kube.controller.controller")
    log.info("cache is in step")
    log.error(
        "reconcile failed", extra={"controller": "kubelet", "key": "ml/digits-0", "error": "no space left"}
    )
    (line,) = (tmp_path / "log").read_text().splitlines()
    for part in ("error", "reconcile failed", "kubelet", "ml/digits-0", "no space left"):
        assert part in line


def test_json_lines_hold_the_same(tmp_path: Path) -> None:
    configure(json=True, file=tmp_path / "log")
    logging.getLogger("elasticjob").info("started", extra={"operator": "devcluster"})
    assert '"operator": "devcluster"' in (tmp_path / "log").read_text()
