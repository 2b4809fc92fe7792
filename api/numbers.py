"""The ranges of numbers and names that other processes send: finite and bounded where they are decoded."""

from __future__ import annotations

from sys import float_info
from typing import Annotated, Final

import msgspec

MANY: Final = 2**53
Count = Annotated[int, msgspec.Meta(ge=0, le=MANY)]
"""A round, a version or a number of steps; bounded well below the largest integer on the wire, since it is
incremented."""
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=253)]
"""The name of a node or an incarnation: as long as the name of a pod may be."""
UNRANKED: Final = -1
"""The index of a node that leaves it to the master: nodes get theirs in the order of joining."""
Index = Annotated[int, msgspec.Meta(ge=UNRANKED, le=2**31)]
"""The number of a node in its role, or UNRANKED."""
MOST: Final = 1e15
Measured = Annotated[float, msgspec.Meta(ge=0, le=MOST)]
"""A rate or an amount that another process has measured: neither NaN nor infinite, nor more than any job
reaches. It fits every integer of a database, and may be multiplied and squared."""
Finite = Annotated[float, msgspec.Meta(ge=-float_info.max, le=float_info.max)]
"""Any number but NaN and the infinite ones, which msgpack can carry."""
Whole = Annotated[int, msgspec.Meta(ge=-MANY, le=MANY)]
"""An integer, such as an exit code; JSON can carry one of any length, which no snapshot takes."""
LARGEST_WORLD: Final = 2**18
Nodes = Annotated[int, msgspec.Meta(ge=0, le=LARGEST_WORLD)]
"""A number of nodes: a job has at most 16 roles of 16,384."""
Wait = Annotated[float, msgspec.Meta(ge=0, le=3600)]
"""How long a request may wait for its response, in seconds."""


def decode_metric(value: object) -> float:
    """Decode a number of another process that came in no message: of metrics. Raises ValueError."""
    return msgspec.convert(value, Measured)
