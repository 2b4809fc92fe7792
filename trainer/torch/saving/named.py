"""The state of an optimizer by the names of its parameters, which are the same in every layout.

torch counts parameters instead: a pipeline's stages would all have a parameter 0. What belongs to no module
of the state stays counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from torch import Tensor, nn
from torch.optim import Optimizer

from elasticjob.trainer.checkpoint.pieces import THIS, is_like, listed
from elasticjob.trainer.checkpoint.rest import GROUPS, PARAMETERS

NAMES: Final = "param_names"
"""torch's own names in a group; they are those of the script."""
Names = Mapping[int, str]
"""The names of parameters by their ids."""
Key = int | str


def names_of(state: Mapping[str, Any]) -> dict[int, str]:
    """Return the names of all parameters in a state; with that of its module where several have the same."""
    modules = {name: each for name, each in state.items() if isinstance(each, nn.Module)}
    found: dict[int, tuple[str, str]] = {}
    for owner, module in modules.items():
        for name, parameter in module.named_parameters():
            found.setdefault(id(parameter), (owner, name))
    counts: dict[str, set[str]] = {}
    for owner, name in found.values():
        counts.setdefault(name, set()).add(owner)
    return {of: name if len(counts[name]) == 1 else f"{owner}.{name}" for of, (owner, name) in found.items()}


def keys_of(optimizer: Optimizer, names: Names) -> list[Key]:
    """Return the key of each parameter of an optimizer, in their order: its name, or its number."""
    return [names.get(id(each), number) for number, each in enumerate(parameters_of(optimizer))]


def parameters_of(optimizer: Optimizer) -> Iterable[Tensor]:
    """Yield the parameters of all groups."""
    return (each for group in optimizer.param_groups for each in group[PARAMETERS])


def rest_of(group: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a group."""
    return {key: each for key, each in group.items() if key not in (PARAMETERS, NAMES)}


def by_name(saved: Mapping[str, Any], optimizer: Optimizer, names: Names) -> dict[str, Any]:
    """Return an optimizer's state dict by the names of its parameters."""
    keys = keys_of(optimizer, names)
    return {
        **saved,
        "state": {
            keys[number] if isinstance(number, int) else number: each
            for number, each in saved["state"].items()
        },
        GROUPS: [
            {
                **{key: each for key, each in group.items() if key != NAMES},
                PARAMETERS: [keys[number] for number in group[PARAMETERS]],
            }
            for group in saved[GROUPS]
        ],
    }


def by_number(
    saved: Mapping[str, Any], optimizer: Optimizer, names: Names, allowed: Sequence[str] = (), of: str = THIS
) -> Mapping[str, Any]:
    """Return the state dict for an optimizer from one by names. ValueError if that has not all parameters.

    Its groups are those of the script, with the arguments that their parameters had.
    """
    known = {key for group in saved[GROUPS] for key in group[PARAMETERS]}
    if not any(isinstance(each, str) for each in known):
        return saved
    keys = keys_of(optimizer, names)
    lacking = [str(each) for each in keys if each not in known]
    if lacking := [each for each in lacking if not is_like(each, allowed)]:
        raise ValueError(
            f"{of}: it has nothing of {listed(lacking)}; train the parameters of the checkpoint, or give "
            "another folder"
        )
    sizes = [
        ", ".join(str(len(each[PARAMETERS])) for each in all_)
        for all_ in (saved[GROUPS], optimizer.param_groups)
    ]
    misfit = ValueError(
        f"{of}: it has groups of {sizes[0]} parameters there, and of {sizes[1]} here; make it as it was, or "
        "give another folder"
    )
    groups, first, taken = [], 0, dict[int, dict[str, Any]]()
    for group in optimizer.param_groups:
        mine = keys[first : first + len(group[PARAMETERS])]
        theirs = [each for each in saved[GROUPS] if set(mine) & set(each[PARAMETERS])]
        own = rest_of(group)
        if len(theirs) > 1 or any(taken.setdefault(id(each), own) != own for each in theirs):
            raise misfit
        named = {NAMES: group[NAMES]} if NAMES in group else {}
        numbers = list(range(first, first + len(mine)))
        groups.append({**(theirs[0] if theirs else own), **named, PARAMETERS: numbers})
        first += len(mine)
    numbered = {number: saved["state"][key] for number, key in enumerate(keys) if key in saved["state"]}
    return {**saved, "state": numbered, GROUPS: groups}
