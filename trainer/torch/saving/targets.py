"""What is filled with the tensors of a checkpoint: the script's own where it may be, else new ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from elasticjob.trainer.checkpoint import part as blocks
from elasticjob.trainer.checkpoint.pieces import THIS, is_like, listed, whole_of
from elasticjob.trainer.checkpoint.rest import pointer, printed
from elasticjob.trainer.torch.saving.named import Names, keys_of, parameters_of
from elasticjob.trainer.torch.saving.tree import StateParts, is_distributed, local

NO_NAMES: Names = {}


class Own:
    """An object of a state whose own tensors are filled, as `describe` returns them; `load` is told then."""

    def __init__(self, describe: Callable[[], dict[str, Any]], load: Callable[[Any], Any]) -> None:
        self.state_dict, self.load_state_dict = describe, load


def targets(
    state: Mapping[str, Any],
    tensors: Sequence[blocks.Tensor],
    names: Names = NO_NAMES,
    allowed: Sequence[str] = (),
    label: str = "state[{!r}]",
    cast: bool | None = None,
) -> dict[str, Tensor]:
    """Return what to fill with the tensors of a checkpoint, placed over the workers as the model is now.

    `state` has by name (`pointer`) what holds tensors, `names` those of parameters. What is not returned has
    no place on this worker. ValueError names what a model lacks in the checkpoint, unless a pattern of
    `allowed` has it, and what is of another shape or type there; with `cast` floats may be of another.

    A model's own tensors are filled, and then given to its load_state_dict, as torch.distributed.checkpoint
    does. All other objects may keep what they are given, so they get new tensors. An optimizer has no state
    before its first step: that of a parameter is placed as the parameter.
    """
    there = {each.name: each for each in tensors}
    older = {printed(pointer_): pointer_ for pointer_ in state}
    owners = {name: owner_of(name, state, older) for name in there}
    into: dict[str, Tensor] = {}
    for owner, each in state.items():
        mine = {name: there[name] for name in there if owners[name] == owner}
        if isinstance(each, (nn.Module, Own)):
            into |= of_module(each, owner, mine, allowed, label, cast)
        elif isinstance(each, Optimizer):
            into |= of_optimizer(each, mine, names)
        elif mine:
            plain = isinstance(each, dict)
            own = StateParts(each if plain else each.state_dict(), owner).tensors
            into |= {
                name: own[name] if plain and is_free(where, own.get(name)) else empty(where, own.get(name))
                for name, where in mine.items()
            }
    return into


def is_free(where: blocks.Tensor, tensor: Tensor | None) -> bool:
    """Whether a dict's own tensor can be filled: others may have it, too, such as a model its parameters."""
    if tensor is None or not takes(where, tensor, cast=False):
        return False
    mine = local(tensor)
    return not mine.is_meta and not any(
        n > 1 and not step for n, step in zip(mine.shape, mine.stride(), strict=True)
    )


def owner_of(name: str, state: Mapping[str, Any], older: Mapping[str, str]) -> str:
    """Return which of the objects of a state a tensor belongs to, "" for none."""
    for sign, owners in (("/", {each: each for each in state}), (".", older)):
        for owner in owners:
            if name == owner or name.startswith(owner + sign):
                return owners[owner]
    return ""


def of_module(
    module: nn.Module | Own,
    owner: str,
    there: Mapping[str, blocks.Tensor],
    allowed: Sequence[str],
    label: str,
    cast: bool | None = None,
) -> dict[str, Tensor]:
    """Return a model's own tensors by their names in the checkpoint, which may be joined by dots."""
    own = StateParts(module.state_dict(), owner).tensors
    found = {name: name if name in there else printed(name) for name in own}
    lacking = [name for name, named in found.items() if named not in there]
    if lacking and isinstance(module, nn.Module) and takes_others(module):
        return {name: empty(where, own.get(name)) for name, where in there.items()}
    lacking = [name for name in lacking if not is_like(printed(name), allowed)]
    wrong = [f"{inner(name, owner)} is not in the checkpoint" for name in lacking]
    for name, named in found.items():
        if named in there and not takes(there[named], own[name], cast=bool(cast)):
            wrong.append(differs(inner(name, owner), own[name], there[named], cast=cast))
    if wrong:
        allow = ", or allow what is missing by --allow-missing PATTERN" if lacking else ""
        raise ValueError(
            f"{THIS} does not fit {label.format(owner)}: {listed(wrong)}; train with the model of the "
            f"checkpoint, {'' if allow else 'or '}give another folder{allow}"
        )
    filled = isinstance(module, Own) or loads_as_torch(module)
    if filled and (meta := [inner(name, owner) for name, each in own.items() if local(each).is_meta]):
        raise ValueError(
            f"{label.format(owner)} has {listed(meta)} on the meta device, where nothing can be loaded: call "
            'model.to_empty(device="cpu"), or "cuda", before'
        )
    return {
        named: own[name] if filled else empty(there[named], own[name])
        for name, named in found.items()
        if named in there
    }


def inner(name: str, owner: str) -> str:
    """Return the name of a tensor within its model."""
    return printed(name.removeprefix(f"{owner}/"))


def differs(name: str, mine: Tensor, theirs: blocks.Tensor, *, cast: bool | None) -> str:
    """Return how a tensor differs from that of a checkpoint."""
    if tuple(mine.shape) != whole_of(theirs):
        return f"{name} has the shape {whole_of(theirs)} there and {tuple(mine.shape)} here"
    way_out = " (cast=True takes other floats)" if cast is False else ""
    return f"{name} is {theirs.dtype} there and {str(mine.dtype).removeprefix('torch.')} here{way_out}"


def of_optimizer(optimizer: Optimizer, there: Mapping[str, blocks.Tensor], names: Names) -> dict[str, Tensor]:
    """Return tensors for the state of an optimizer's own parameters, and all that is of none.

    They are named <optimizer>/state/<name or number of the parameter>/<key>, in older ones joined by dots.
    """
    known = {str(number): each for number, each in enumerate(parameters_of(optimizer))}
    pairs = zip(keys_of(optimizer, names), parameters_of(optimizer), strict=True)
    known |= {pointer("", key): each for key, each in pairs}
    into: dict[str, Tensor] = {}
    for name, where in there.items():
        sign = "/state/" if "/state/" in name else ".state."
        _, of_state, rest = name.partition(sign)
        key = rest.split(sign[0])[0]
        if not of_state or key in known:
            into[name] = empty(where, known.get(key) if of_state else None)
    return into


def takes_others(module: nn.Module) -> bool:
    """Whether a model makes its names from others when it loads: it has hooks of its own for that."""
    hooks = [hook for each in module.modules() for hook in each._load_state_dict_pre_hooks.values()]
    return not loads_as_torch(module) or any(
        not getattr(getattr(each, "hook", each), "__module__", "").startswith("torch.") for each in hooks
    )


def loads_as_torch(module: nn.Module) -> bool:
    """Whether a module's load_state_dict is that of torch, which keeps nothing of what it is given."""
    return getattr(module.load_state_dict, "__func__", None) is nn.Module.load_state_dict


def takes(where: blocks.Tensor, tensor: Tensor, *, cast: bool) -> bool:
    """Whether a tensor can be filled with one of a checkpoint as it is, or with `cast` from other floats."""
    kind: torch.dtype = getattr(torch, where.dtype)
    floats = cast and kind.is_floating_point and tensor.dtype.is_floating_point
    return tuple(tensor.shape) == whole_of(where) and (tensor.dtype is kind or floats)


def empty(where: blocks.Tensor, like: Tensor | None) -> Tensor:
    """Return a new tensor for one of a checkpoint, divided over the workers as `like`, if that is."""
    whole, kind = whole_of(where), getattr(torch, where.dtype)
    if like is not None and is_distributed(like) and tuple(like.shape) == whole:
        return torch.empty_like(like, dtype=kind)
    return torch.empty(whole, dtype=kind)
