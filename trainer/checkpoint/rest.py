"""The rest of a state, all that is no tensor, as MessagePack; torch has a format of its own.

A mapping with the key REFERENCE alone stands for a tensor of that name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from elasticjob.api.rpc.unreadable import UNREADABLE
from elasticjob.trainer.checkpoint.part import Damaged

MAGIC: Final = b"elasticjob rest\n"
REFERENCE: Final = "\0tensor"
"""The key of a dict that stands for a tensor."""
GROUPS: Final = "param_groups"
PARAMETERS: Final = "params"


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


def merged(rests: Sequence[Any]) -> Any:
    """Return what several workers had as one: all keys, and for those of several what the first one had.

    The groups of optimizers (`named.py`) are united where all but their parameters is equal.
    """
    first, *others = rests
    if not others or not all(isinstance(each, Mapping) for each in rests):
        return first
    if GROUPS in first and all(GROUPS in each for each in others):
        united = {key: merged([each[key] for each in rests if key in each]) for key in first if key != GROUPS}
        return {**united, GROUPS: _groups([group for each in rests for group in each[GROUPS]])}
    whole = {key: merged([each[key] for each in rests if key in each]) for each in rests for key in each}
    if not isinstance(first, dict) or type(first) is dict:
        return whole
    same = first.copy()
    same.update(whole)
    return same


def _groups(groups: Sequence[Any]) -> list[Any]:
    found: list[dict[str, Any]] = []
    for group in groups:
        rest = {key: each for key, each in group.items() if key != PARAMETERS}
        same = next((one for one in found if one == {**rest, PARAMETERS: one[PARAMETERS]}), None)
        if same is None:
            found.append(dict(group, **{PARAMETERS: list(group[PARAMETERS])}))
        else:
            same[PARAMETERS] += [each for each in group[PARAMETERS] if each not in same[PARAMETERS]]
    return found


def printed(name: str) -> str:
    """Return the name of a part as people read it, and as older checkpoints had it: joined by dots."""
    return name.replace("/", ".").replace("~1", "/").replace("~0", "~")


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode
