"""Frozen values of the master's state."""

from __future__ import annotations

from typing import Any, Self

import msgspec


class Value(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A frozen value of the master's state."""

    def but(self, **changes: Any) -> Self:
        """Return a copy with `changes`."""
        return msgspec.structs.replace(self, **changes)
