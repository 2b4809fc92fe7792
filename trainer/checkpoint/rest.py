"""The rest of a state, all that is no tensor, as MessagePack; torch has a format of its own.

A mapping with the key REFERENCE alone stands for a tensor of that name.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from elasticjob.api.rpc.unreadable import UNREADABLE
from elasticjob.trainer.checkpoint.part import Damaged

MAGIC: Final = b"elasticjob rest\n"
REFERENCE: Final = "\0tensor"
"""The key of a dict that stands for a tensor."""


def encode(value: Any) -> bytes:
    """Return numbers, strings, lists and dicts as bytes."""
    return MAGIC + _encode(value)


def is_plain(rest: bytes) -> bool:
    """Whether `encode` has made this."""
    return rest.startswith(MAGIC)


def decode(rest: bytes) -> Any:
    """Return what was encoded. Damaged if it is none."""
    try:
        return _decode(rest.removeprefix(MAGIC))
    except UNREADABLE as error:
        raise Damaged(f"the rest of its state is none: {error}") from error


def pointer(name: str, key: object) -> str:
    """Return the name of a part: a JSON pointer (RFC 6901), so that no two parts have the same."""
    escaped = str(key).replace("~", "~0").replace("/", "~1")
    return f"{name}/{escaped}" if name else escaped


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode
