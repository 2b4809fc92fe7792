"""The termination message: why this program ended, as JSON, for the operator."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Final

CANNOT_START: Final = "CannotStart"
"""The reason for an end that another pod would only repeat."""
OUT_OF_MEMORY: Final = "OOMKilled"
"""The reason for an end because a worker was killed for want of memory; the kubelet says the same."""


def write(path: Path | None, *, reason: str, message: str, code: int, local_rank: int = -1) -> None:
    """Write the termination message, if there is a place for it."""
    words = {"reason": reason, "message": message, "exitCode": code, "localRank": local_rank}
    if path is not None:
        with suppress(OSError):
            path.write_text(json.dumps(words))


def clear(path: Path | None) -> None:
    """Leave no message: then the kubelet takes the last lines of the log."""
    if path is not None:
        with suppress(OSError):
            path.write_text("")
