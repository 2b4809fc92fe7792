"""What all integrations check: values that a checkpoint may hold, and the order of the records."""

from __future__ import annotations

from collections.abc import Mapping
from pickle import PicklingError  # noqa: TID251  # only the name of torch's error
from typing import Any

from elasticjob.trainer.records import order
from elasticjob.trainer.torch.saving.tree import StateParts, decode


def sampler_of(prepared: Any) -> Any:
    """Return where a loader that accelerate has prepared takes its indices from."""
    batches = prepared.batch_sampler
    while (inner := getattr(batches, "batch_sampler", None)) is not None:  # of one worker among several
        batches = inner
    return getattr(batches, "sampler", batches)


def order_of(prepared: Any, workers: int, seed: int | None) -> dict[str, Any]:
    """Return what the batches of such a loader depend on."""
    sized = hasattr(prepared.dataset, "__len__")
    batch = getattr(prepared.batch_sampler, "batch_size", None)
    order = {"workers": workers, "batch size": batch, "sampler": type(sampler_of(prepared)).__name__}
    return (
        order
        | ({"records": len(prepared.dataset)} if sized else {})
        | ({} if seed is None else {"seed": seed})
    )


def check_order(taken: str, mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> None:
    """Raise ValueError if a checkpoint has `taken` what it has in another order than mine.

    The order of another number of workers is another one, which the log of RandomState tells.
    """
    if theirs.get("workers") == mine["workers"]:
        order.check(taken, mine, theirs)


def check(name: str, value: Any) -> None:
    """Raise TypeError, with the name of the smallest piece that could not be read again."""
    try:
        decode(StateParts(value).encode())
        return
    except (TypeError, AttributeError, PicklingError):
        if isinstance(value, Mapping):
            for key, each in value.items():
                check(f"{name}[{key!r}]", each)
    raise TypeError(
        f"{name} is a {type(value).__name__}: a checkpoint holds only tensors, numbers, strings, lists and "
        "dicts, so convert it where it is saved (state_dict, on_save_checkpoint), and back where it is loaded"
    )
