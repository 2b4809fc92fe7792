"""Differences that are meant: each is a row of docs/kueue.md."""

from __future__ import annotations

from typing import Final

from tests.incumbents.oracle import Explained

MASKS: Final = (("*: words", "each side has its own"),)
EXPLAINED: Final[tuple[Explained, ...]] = ()
