"""What all integrations check: values that a checkpoint may hold, and the order of the records."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pickle import PicklingError  # noqa: TID251  # only the name of torch's error
from typing import Any, Final

from elasticjob.trainer.records import order
from elasticjob.trainer.torch.saving.tree import StateParts, decode

ASKED: Final = {
    "ACCELERATE_USE_FSDP": "FSDP",
    "ACCELERATE_USE_DEEPSPEED": "DEEPSPEED",
    "ACCELERATE_USE_MEGATRON_LM": "MEGATRON_LM",
}
"""Ways to divide a model, by the variables that accelerate sets when it is given their plugins."""


def check_division(accelerator: Any) -> None:
    """Raise an error unless accelerate replicates the model, or was asked to divide it by FSDP2, and does.

    On CPUs it ignores the plugins, and trains by DistributedDataParallel without a word.
    """
    kind = accelerator.distributed_type.value
    given = [name for variable, name in ASKED.items() if os.environ.get(variable, "").lower() == "true"]
    asked = next(iter(given), kind)
    if asked in ("DEEPSPEED", "MEGATRON_LM"):
        raise TypeError(f"accelerate divides the model by {asked}, which is not saved: use FSDP2 or DDP")
    if asked != kind:
        raise ValueError(
            f"{asked} was asked for, and accelerate trains whole models ({kind}), as always on CPUs: train "
            "on GPUs, or leave FSDP out (fsdp=, fsdp_plugin=, ACCELERATE_USE_FSDP)"
        )
    if kind == "FSDP" and not accelerator.is_fsdp2:
        raise TypeError("accelerate divides the model by FSDP 1, which is not saved: set fsdp_version=2")


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
