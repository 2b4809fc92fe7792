"""The state of a checkpoint given to what a script has made: a misfit is refused, changed arguments are told.

The state of torch's optimizers and schedules holds arguments of the script as well, such as learning
rates and horizons. `load_state_dict` takes them in silence, and those of another class of optimizer, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any, Final

from torch import nn
from torch.amp import GradScaler
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

HYPER: Final = ("weight_decay", "momentum", "betas", "eps", "nesterov", "amsgrad", "dampening")
"""Arguments of optimizers by which their classes differ; `lr` all of them have."""
CYCLED: Final = ("max_lr", "base_momentum", "max_momentum")
"""Arguments of schedulers that these keep in the groups of the optimizer."""
OTHERS: Final = frozenset({"params", "param_names", "initial_lr", "min_lr", *CYCLED})
"""Keys of a group that are not by the class of the optimizer."""
SCHEDULE: Final = (
    *("T_max", "T_0", "T_mult", "eta_min", "step_size", "gamma", "milestones", "_milestones", "power"),
    *("total_iters", "start_factor", "end_factor", "total_steps", "max_lrs", "total_size", "step_ratio"),
    *("factor", "patience", "cooldown", "threshold", "mode", "min_lrs"),
)
"""Arguments of schedulers. Not `base_lrs`: they are the rates of the groups, which are told."""
SCALER: Final = ("growth_factor", "backoff_factor", "growth_interval")
MOST: Final = 3  # differences that a sentence names


def load(name: str, mine: Any, saved: Any, of: str, schedulers: Sequence[LRScheduler] = ()) -> list[str]:
    """Load the `saved` state of a checkpoint, `of` which sentences tell, into `mine`, a dict or a Stateful.

    Returns which arguments of the script that changes. ValueError in one line if the state does not fit.
    `schedulers` are those of the script: what they change from step to step is no argument.
    """
    if isinstance(mine, dict):
        mine.clear()
        mine.update(saved)
        return []
    if isinstance(mine, nn.Module):
        _load_module(name, mine, saved, of)
        return []
    if not isinstance(saved, Mapping):  # of a class of the script's own
        mine.load_state_dict(saved)
        return []
    check(name, mine, saved, of)
    changes = [f"{name}: {change}" for change in _changes(mine, saved, schedulers)]
    mine.load_state_dict(saved)
    return changes


def warnings_of(changes: Sequence[str], of: str, after: str) -> list[str]:
    """Return the one warning that tells of `changes`, if there are any; they can be undone `after` a call."""
    if not changes:
        return []
    return [
        f"{of} has other arguments than the script: {'; '.join(changes)}; to change one, set it after "
        f"{after} in param_groups or on the scheduler (docs/training.md, Changing arguments)"
    ]


def _load_module(name: str, module: nn.Module, saved: Any, of: str) -> None:
    """Load a model. ValueError in one line for torch's error of several."""
    try:
        module.load_state_dict(saved)
    except RuntimeError as error:
        if not str(error).startswith("Error(s) in loading state_dict"):
            raise
        differences = _differences(module.state_dict(), saved) or [" ".join(str(error).split())]
        more = f" (and {len(differences) - MOST} more)" if len(differences) > MOST else ""
        raise ValueError(
            f"{of} does not fit {name}: {', '.join(differences[:MOST])}{more}; train with the model of the "
            "checkpoint, or give another folder"
        ) from error


def _differences(mine: Mapping[str, Any], saved: Mapping[str, Any]) -> list[str]:
    """Return what is different in the states of two models, in the order of their layers."""
    shapes = {key: tuple(getattr(each, "shape", ())) for key, each in mine.items()}
    theirs = {key: tuple(getattr(each, "shape", ())) for key, each in saved.items()}
    return [
        *(
            f"{key} has the shape {theirs[key]} there and {shape} here"
            for key, shape in shapes.items()
            if key in theirs and theirs[key] != shape
        ),
        *(f"{key} is not in the checkpoint" for key in shapes if key not in theirs),
        *(f"{key} is only in the checkpoint" for key in theirs if key not in shapes),
    ]


def check(name: str, mine: Any, saved: Mapping[str, Any], of: str) -> None:
    """Raise ValueError if the state of an optimizer or a scheduler does not fit."""
    if misfit := _misfit(mine, saved):
        raise ValueError(
            f"{of} does not fit {name}: it has {misfit}; make it as it was, or give another folder"
        )


def _misfit(mine: Any, saved: Mapping[str, Any]) -> str:
    """Return why a state is that of another class of optimizer or scheduler, or of other parameters."""
    if isinstance(mine, Optimizer) and "param_groups" in saved:
        return _misfit_of_groups(mine, saved["param_groups"])
    if isinstance(mine, LRScheduler):
        return _misfit_of_schedule(mine, saved)
    return ""


def _misfit_of_groups(mine: Optimizer, there: Sequence[Mapping[str, Any]]) -> str:
    here = mine.param_groups
    if other := _other_class(mine, _keys(here) - OTHERS, _keys(there) - OTHERS, HYPER):
        return other
    counts, theirs = ([len(group["params"]) for group in groups] for groups in (here, there))
    if counts == theirs:
        return ""
    return f"groups of {_list(theirs)} parameters there, and of {_list(counts)} here"


def _misfit_of_schedule(mine: LRScheduler, saved: Mapping[str, Any]) -> str:
    if other := _other_class(mine, mine.state_dict().keys(), saved.keys(), SCHEDULE):
        return other
    inner, theirs = getattr(mine, "_schedulers", ()), saved.get("_schedulers", ())
    if len(inner) != len(theirs):
        return f"{len(theirs)} schedulers in it there, and {len(inner)} here"
    return next(filter(None, map(_misfit, inner, theirs)), "")


def _other_class(mine: Any, here: Set[str], there: Set[str], arguments: Sequence[str]) -> str:
    """Return how the keys of two classes differ, if they do: a newer torch only adds keys to a class."""
    known = set(arguments)
    lost, new = there - here, here - there
    if not (lost and new) and not (lost | new) & known:
        return ""
    were, are = (sorted(each, key=lambda key: (key not in known, key)) for each in (lost, new))
    kind = type(mine).__name__
    return f"{_list(were or ['nothing'])} only there, and {_list(are or ['nothing'])} only here ({kind})"


def _changes(mine: Any, saved: Any, schedulers: Sequence[LRScheduler]) -> list[str]:
    """Return which arguments become those of the checkpoint."""
    if isinstance(mine, Optimizer) and "param_groups" in saved:
        scheduled = any(getattr(each, "optimizer", None) is mine for each in schedulers)
        pairs = zip(mine.param_groups, saved["param_groups"], strict=True)
        changes = [_of_group(here, there, scheduled) for here, there in pairs]
        if all(each == changes[0] for each in changes):
            return changes[0]
        return [f"group {number}: {change}" for number, each in enumerate(changes) for change in each]
    if isinstance(mine, LRScheduler):
        inner = zip(getattr(mine, "_schedulers", ()), saved.get("_schedulers", ()), strict=True)
        return [
            *_compare(mine.state_dict(), saved, SCHEDULE),
            *(change for here, there in inner for change in _changes(here, there, ())),
        ]
    return _compare(mine.state_dict(), saved, SCALER) if isinstance(mine, GradScaler) else []


def _of_group(here: Mapping[str, Any], there: Mapping[str, Any], scheduled: bool) -> list[str]:
    """Compare the arguments of a group of parameters, but for those that schedulers change."""
    steady: tuple[str, ...] = HYPER
    if "max_momentum" in here or "max_momentum" in there:  # OneCycleLR, CyclicLR
        steady = tuple(each for each in HYPER if each not in ("momentum", "betas"))
    changes = _compare(here, there, (*steady, *CYCLED, "maximize"))
    if "initial_lr" in here:
        began = {"lr": there.get("initial_lr", there["lr"])}
        return [*_compare({"lr": here["initial_lr"]}, began, ("lr",)), *changes]
    return changes if scheduled else [*_compare(here, there, ("lr",)), *changes]


def _compare(here: Mapping[str, Any], there: Mapping[str, Any], names: Iterable[str]) -> list[str]:
    both = [name for name in names if name in here and name in there]
    pairs = {name: (_plain(here[name]), _plain(there[name])) for name in both}
    return [
        f"{name.lstrip('_')} {mine} became the checkpoint's {saved}"
        for name, (mine, saved) in pairs.items()
        if mine != saved
    ]


def _keys(groups: Iterable[Mapping[str, Any]]) -> set[str]:
    return {key for group in groups for key in group}


def _list(values: Sequence[Any]) -> str:
    more = f" and {len(values) - MOST} more" if len(values) > MOST else ""
    return ", ".join(map(str, values[:MOST])) + more


def _plain(value: Any) -> Any:
    """Return a value that can be compared and shown: a rate may be a tensor, milestones a Counter."""
    if isinstance(value, Counter):
        return tuple(sorted(value.elements()))
    if hasattr(value, "tolist"):
        value = value.tolist()
    return tuple(map(_plain, value)) if isinstance(value, (list, tuple)) else value
