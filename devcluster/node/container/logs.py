"""The logs of containers: the file format, and the selection that `kubectl logs` asks for.

A line is `2026-01-02T03:04:05.123456789Z stdout F text`; the tag P marks a part without its newline.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path


@dataclass(frozen=True)
class Selection:
    """The selection of log lines; the names are those of the API's query parameters."""

    follow: bool = False
    previous: bool = False
    timestamps: bool = False
    tail: int | None = None
    since: datetime | None = None
    limit: int | None = None

    @staticmethod
    def of(query: Mapping[str, str], now: datetime) -> Selection:
        """Raises ValueError for a malformed parameter."""
        since = datetime.fromisoformat(query["sinceTime"]) if query.get("sinceTime") else None
        if query.get("sinceSeconds"):
            since = now - timedelta(seconds=int(query["sinceSeconds"]))
        return Selection(
            follow=_true(query.get("follow")),
            previous=_true(query.get("previous")),
            timestamps=_true(query.get("timestamps")),
            tail=int(query["tailLines"]) if query.get("tailLines") else None,
            since=since.replace(tzinfo=since.tzinfo or UTC) if since else None,
            limit=int(query["limitBytes"]) if query.get("limitBytes") else None,
        )


def _true(value: str | None) -> bool:
    return value is not None and value.lower() in ("true", "1", "t")


def select(content: bytes, wanted: Selection) -> bytes:
    """The selected part of a whole log, as `kubectl logs` prints it."""
    lines = [line for line in content.split(b"\n") if line]
    if wanted.since is not None:
        since = wanted.since.astimezone(UTC).isoformat(timespec="microseconds")[:26].encode()
        lines = [line for line in lines if line[:26] >= since]
    if wanted.tail is not None:
        lines = _last(lines, wanted.tail)
    return b"".join(plain(lines, wanted.timestamps))[: wanted.limit]


def plain(lines: Iterable[bytes], timestamps: bool = False) -> Iterator[bytes]:
    """Each line without its head, and with a newline unless it is a part."""
    for line in lines:
        time, _, tag, text = line.split(b" ", 3)
        yield (time + b" " if timestamps else b"") + text + (b"" if tag == b"P" else b"\n")


def _last(lines: list[bytes], count: int) -> list[bytes]:
    """The last `count` lines, counting a line that was written in parts once."""
    start = len(lines)
    while start > 0 and count >= 0:
        count -= _is_whole(lines[start - 1]) or start == len(lines)
        start -= count >= 0
    return lines[start:]


def _is_whole(line: bytes) -> bool:
    return line.split(b" ", 3)[2] == b"F"


def end_of(path: Path, size: int = 64 * 1024) -> bytes:
    """The last whole lines of a log, about `size` bytes of it: as much as a message can need."""
    with path.open("rb") as file:
        start = max(file.seek(0, os.SEEK_END) - size, 0)
        file.seek(start)
        content = file.read()
    return content[content.find(b"\n") + 1 :] if start else content


def last_words(content: bytes) -> str:
    """The fallback of a termination message: the log's last 80 lines, at most 2,048 bytes."""
    text = b"".join(plain(_last([line for line in content.split(b"\n") if line], 80)))
    return text[-2048:].decode("utf-8", "replace")
