"""Values that a checkpoint may hold: none that only a trusted program may load."""

from __future__ import annotations

from collections.abc import Mapping
from pickle import PicklingError  # noqa: TID251  # only the name of torch's error
from typing import Any

from elasticjob.trainer.torch.saving.tree import Taken, decoded


def check(name: str, value: Any) -> None:
    """Raise TypeError, with the name of the smallest piece that could not be read again."""
    try:
        decoded(Taken(value).encoded())
        return
    except (TypeError, AttributeError, PicklingError):
        if isinstance(value, Mapping):
            for key, each in value.items():
                check(f"{name}[{key!r}]", each)
    raise TypeError(
        f"{name} is a {type(value).__name__}: a checkpoint holds only tensors, numbers, strings, lists and "
        "dicts, so convert it where it is saved (state_dict, on_save_checkpoint), and back where it is loaded"
    )
