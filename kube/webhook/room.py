"""A limit on requests in flight: by number, and by the bytes held for them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class Full(Exception):
    """There is no room: to be answered at once, so that nothing piles up."""


class InFlight:
    """At most `number` things, of together at most `size` bytes."""

    def __init__(self, number: int, size: int) -> None:
        self._number = number
        self._size = size

    @contextmanager
    def hold(self, size: int) -> Iterator[None]:
        """Hold room for one thing of `size` bytes. Raises Full where there is none."""
        if self._number < 1 or self._size < size:
            raise Full
        self._number -= 1
        self._size -= size
        try:
            yield
        finally:
            self._number += 1
            self._size += size
