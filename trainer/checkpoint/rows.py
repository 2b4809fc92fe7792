"""The tables of a store as whole tensors: a checkpoint has their rows by partitions, each a part of its own.

The rows of a table's `ids`, `values` and `state` have one order, by partitions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from elasticjob.trainer.checkpoint.part import Head, Tensor
from elasticjob.trainer.checkpoint.rest import REFERENCE


def is_store(rest: Any) -> bool:
    """Whether this is the rest of a part that a store has written."""
    return isinstance(rest, Mapping) and rest.keys() == {"tables", "counted", "positions"}


def of_tables(heads: Sequence[Head]) -> tuple[dict[str, Any], list[Head]]:
    """Return a state with a dict of tensors for each table, and heads whose tensors are pieces of those."""
    found: dict[tuple[str, str], list[tuple[int, Tensor]]] = defaultdict(list)
    for head in heads:
        for each in head.tensors:
            table, _, what = each.name.rsplit("/", 2)
            found[table, what].append((head.part, each))
    state: dict[str, Any] = {}
    pieces: dict[int, list[Tensor]] = defaultdict(list)
    for (table, what), given in found.items():
        width = given[0][1].shape[1:]
        if 0 in width:
            continue  # SGD has no state
        name, begin, end = f"{table}/{what}", 0, sum(each.shape[0] for _, each in given)
        state.setdefault(table, {})[what] = {REFERENCE: name}
        for part, each in [one for one in given if one[1].size] or given[:1]:
            offset = (begin, *(0 for _ in width))
            piece = msgspec.structs.replace(each, name=name, whole=(end, *width), offset=offset)
            pieces[part].append(piece)
            begin += each.shape[0]
    return state, [msgspec.structs.replace(each, tensors=tuple(pieces[each.part])) for each in heads]
