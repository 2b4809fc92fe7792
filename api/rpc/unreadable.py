"""The errors of msgspec for bytes that are no message of the wanted type."""

from __future__ import annotations

from typing import Final

import msgspec

UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""Its own error, and two of Python's: for text that is no UTF-8, and for what is nested too deep."""
