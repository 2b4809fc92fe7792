"""What `elasticjob brain` refuses at its start, and how it names what is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from elasticjob.brain import main
from elasticjob.brain.settings import Settings
from elasticjob.cli.commands.brain import brain
from elasticjob.cli.errors import Failure

FLAGS: dict[str, Any] = {"cluster": False, "port": 0, "probes": ""}


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"key_file": Path("nokey")}, "the key of the tokens of masters cannot be read: .*--key-file"),
        ({"reading_token_file": Path("/dev/null")}, "the token of readers is missing: /dev/null is empty"),
        ({"database": "mysql://x/y"}, "the database cannot be had: mysql is no database of ours.*--database"),
        ({"source": "prometheus"}, "the source prometheus needs a server: give --prometheus URL"),
    ],
)
def test_what_brain_cannot_begin_with_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: dict[str, Any], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Failure, match=words):
        brain(**{**FLAGS, **flags})


def test_an_error_of_ours_is_not_the_databases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run(settings: Settings, page: object) -> None:
        raise ValueError("a defect")

    monkeypatch.setattr(main, "run", run)
    with pytest.raises(ValueError, match="a defect"):
        brain(**FLAGS)
