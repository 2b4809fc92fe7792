"""Decoding untrusted JSON: every malformed input raises one kind of error.

msgspec follows a text by recursion, and raises RecursionError for what is nested deeper than Python goes:
some hundred levels. A server stores ten thousand.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec

T = TypeVar("T")


class TooDeep(msgspec.DecodeError):
    """A text is nested deeper than it can be read."""

    def __init__(self) -> None:
        super().__init__("it is nested deeper than can be read")


class JsonReader(Generic[T]):
    """Reads texts as one type."""

    __slots__ = ("_decode",)

    def __init__(self, type_: type[T], *, strict: bool = True) -> None:
        self._decode: Callable[[msgspec.Raw | bytes | str], T] = msgspec.json.Decoder(
            type_, strict=strict
        ).decode

    def decode(self, text: msgspec.Raw | bytes | str) -> T:
        """Decode a string. Raises msgspec.DecodeError (ValidationError, TooDeep), which is a ValueError."""
        try:
            return self._decode(text)
        except RecursionError as error:
            raise TooDeep from error
        except UnicodeDecodeError as error:
            raise msgspec.DecodeError(f"it is no UTF-8: {error}") from error
