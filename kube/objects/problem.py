"""A problem of an object: the field, and the value it should have."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """A finding about one field; `message` says what is wrong and what to write instead."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"
