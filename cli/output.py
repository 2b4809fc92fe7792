"""The option `--output`, shared by commands that print data."""

from __future__ import annotations

from enum import StrEnum


class Output(StrEnum):
    """Output for people, or for programs."""

    TEXT = "text"
    JSON = "json"
