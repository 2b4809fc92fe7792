"""How a command prints what there is to read: `--output`."""

from __future__ import annotations

from enum import StrEnum


class Output(StrEnum):
    """For people, or for programs."""

    TEXT = "text"
    JSON = "json"
