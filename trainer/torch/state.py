"""The state that workers share: model, optimizers, schedulers, the user's own, and progress of the job."""

from __future__ import annotations

import copy
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.amp import GradScaler
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from elasticjob.trainer.checkpoint.rest import pointer
from elasticjob.trainer.loop.world import NOTHING
from elasticjob.trainer.records.done import Done
from elasticjob.trainer.torch import restoring
from elasticjob.trainer.torch.buffers import copy_to
from elasticjob.trainer.torch.saving.targets import targets
from elasticjob.trainer.torch.saving.tensors import Targets
from elasticjob.trainer.torch.saving.tree import local, settle
from elasticjob.trainer.torch.world.peers import Peers

log = logging.getLogger("elasticjob")

PROGRESS: Final = ("done", "meetings", "scores", "scheduled", "order", "left_out", "ended")
OTHERS: Final = "the state of the others"


@runtime_checkable
class Stateful(Protocol):
    """What `keep` takes: modules, metrics, and whatever else has these two."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: Any) -> Any: ...


@dataclass(frozen=True)
class PerEpoch:
    """A scheduler that steps at the end of an epoch instead of after each step.

    ReduceLROnPlateau needs `metric`: a name among the scores of `Elastic.evaluate`, or "loss", the mean loss
    of the last step.
    """

    scheduler: LRScheduler
    metric: str = ""

    def __post_init__(self) -> None:
        if isinstance(self.scheduler, ReduceLROnPlateau) and not self.metric:
            raise TypeError(
                "PerEpoch(ReduceLROnPlateau(...)) needs the name of its metric, like "
                'PerEpoch(plateau, "accuracy")'
            )

    def step(self, metrics: Mapping[str, float]) -> None:
        """Step at the end of an epoch, knowing `metrics`."""
        if not isinstance(self.scheduler, ReduceLROnPlateau):
            self.scheduler.step()
            return
        if self.metric not in metrics:
            known = ", ".join(sorted(metrics))
            raise RuntimeError(
                f"no metric {self.metric!r} at the end of the epoch, for ReduceLROnPlateau: call "
                f"elastic.evaluate after the last step of each epoch, with this score (known: {known})"
            )
        self.scheduler.step(metrics[self.metric])


@dataclass
class State:
    """The training state of one worker; `done` is replaced after each step.

    `meetings` counts what all did together between steps: evaluations, whose last results are `scores`, and
    exchanges of values, of which `said` is the last one since a step, and `early` those before the first step
    of these processes. `scheduled` counts the epochs after which the schedulers of `per_epoch` have stepped;
    `order` tells the order of the data,
    `left_out` how many steps were not taken because they were not finite, `ended` the epochs and steps that a
    loop had asked for when the script left it. `whole` says that this is the state
    of the job. `mixed` is True from the first received tensor of a broadcast until the
    last: if the sender dies in between, the state is inconsistent and must not be shared.
    """

    model: nn.Module
    optimizers: Sequence[Optimizer]
    schedulers: Sequence[LRScheduler] = ()
    per_epoch: Sequence[PerEpoch] = ()
    scaler: GradScaler | None = None
    keep: Mapping[str, Any] = field(default_factory=dict)
    done: Done = field(default_factory=Done)
    meetings: int = 0
    scores: dict[str, float] = field(default_factory=dict)
    scheduled: int = 0
    order: dict[str, Any] = field(default_factory=dict)
    left_out: int = 0
    ended: tuple[int | None, int | None] | tuple[()] = ()
    said: list[bytes] = field(default_factory=list)
    early: list[tuple[int, list[bytes]]] = field(default_factory=list)
    whole: bool = False
    mixed: bool = False

    @property
    def age(self) -> tuple[int, int]:
        """How far this state has come: steps, then meetings."""
        return (self.done.step, self.meetings) if self.whole else (NOTHING, NOTHING)

    def snapshot(self) -> dict[str, Any]:
        """Return everything as plain tensors and numbers."""
        return {"model": self.model.state_dict(), **self._trained(), "keep": self._user_state()}

    def restore(self, snapshot: dict[str, Any], where: str = "memory") -> list[str]:
        """Take over a `snapshot` from `where`; return warnings: where the script and the snapshot differ.

        ValueError if it was made with another model, other optimizers or schedulers, or a `keep` that is not
        here.
        """
        of = f"the checkpoint of step {snapshot['done']['step']} in {where}"
        changes = restoring.load("the model", self.model, snapshot["model"], of)
        changes += self._restore_trained(snapshot, of)
        warnings = restoring.warnings_of(changes, of, "Elastic(...)")
        if bool(snapshot["scaler"]) != (self.scaler is not None and self.scaler.is_enabled()):
            use = "is not used" if snapshot["scaler"] else "is not there, so this one begins anew"
            warnings.append(f"{of} and the script differ: the state of a GradScaler {use}")
        if (before := snapshot.get("frozen")) is not None and before != (now := self._frozen()):
            warnings.append(
                f"{of} was made while {len(before)} parameters were frozen, and now {len(now)} are: see that "
                "the script freezes and unfreezes by `elastic.epoch` or `elastic.progress.step`"
            )
        if new := sorted(self.keep.keys() - snapshot["keep"].keys()):
            warnings.append(f"{of} has no keep {new}: they begin as the script has made them")
        self._restore_kept(snapshot["keep"], of, new=new)
        return warnings

    @property
    def into(self) -> Targets:
        """What is to be filled with the tensors of a checkpoint."""
        return lambda _, tensors: targets(self._by_name(), tensors, label="the {}")

    def _by_name(self) -> dict[str, Any]:
        """Return what holds tensors by its name in a snapshot."""
        optimizers = {f"optimizers/{index}": each for index, each in enumerate(self.optimizers)}
        kept = {pointer("keep", name): each for name, each in self.keep.items()}
        return {"model": self.model, **optimizers, **kept}

    def roll_back(self, snapshot: dict[str, Any]) -> None:
        """Take over what an earlier `snapshot` has trained; the position in the data stays."""
        now = {name: getattr(self, name) for name in PROGRESS}
        self.restore(copy.deepcopy(snapshot))
        for name, value in now.items():
            setattr(self, name, value)

    def begin(self, peers: Peers, start: Callable[[], bool]) -> None:
        """Let all workers begin with what `start` restores for rank 0, or with its script's initial state.

        RuntimeError if `start`, which all call, restores nothing and the initial state is gone.
        """
        restored = start()
        if peers.gives(0) and not restored and self.mixed:
            raise RuntimeError(
                "the worker that sent its model died during the transfer, no other has it, and there is no "
                "checkpoint: restart the job, with Elastic(checkpoint=...) to lose less next time"
            )
        self.take(peers, [0])

    def take(self, peers: Peers, sources: Sequence[int]) -> None:
        """Give everything of workers `sources` to the workers that have nothing yet.

        They have the same parameters and optimizers; buffers, and what the user keeps, are the first one's.
        """
        giving, was_whole = any(map(peers.gives, sources)), self.whole
        if not was_whole:
            self.whole, self.mixed = giving, not giving
        peers.hand_over(self._parameters(), sources)
        peers.broadcast(self._buffers(), sources[0])
        trained = peers.share(self._to_share() if giving else None, sources)
        kept = peers.share(self._user_state() if giving else None, sources[:1])
        if not giving and not was_whole:
            self._restore_trained(trained)
            self._restore_kept(kept)
            self._freeze(trained["frozen"])
        self.whole, self.mixed = True, False

    def catch_up(self, peers: Peers, source: int) -> None:
        """Bring the workers that hold a state to that of `source`, who may be one step ahead of them.

        What the user keeps stays: each worker changes it in its own code after the step. A worker that has
        nothing yet takes part, and changes nothing.
        """
        giving = peers.gives(source)
        mine = [*self._parameters(), *self._buffers()]
        tensors = [tensor.clone() for tensor in mine]
        peers.broadcast(tensors, source)
        received = peers.share(self._to_share() if giving else None, [source])
        if giving or not self.whole:
            return
        with torch.no_grad():
            for each, theirs in zip(mine, tensors, strict=True):
                each.copy_(theirs)
        self._restore_trained(received)

    def end_epoch(self) -> None:
        """Step the schedulers of the epochs that have ended since the last time."""
        while self.scheduled < self.done.epoch:
            for each in self.per_epoch:
                each.step({"loss": self.done.loss, **self.scores})
            self.scheduled += 1

    def buffers(self) -> list[Tensor]:
        """Return copies of the model's buffers, for a step that has to be repeated."""
        return [buffer.detach().clone() for buffer in self.model.buffers()]

    def put_back(self, buffers: Sequence[Tensor]) -> None:
        """Restore the model's buffers."""
        copy_to(list(self.model.buffers()), buffers)

    def _to_share(self) -> dict[str, Any]:
        """Return what goes to other workers and not into checkpoints, too."""
        return {**self._trained(), "said": self.said, "early": self.early}

    def _trained(self) -> dict[str, Any]:
        return {
            "optimizers": [plain(each.state_dict()) for each in self.optimizers],
            "schedulers": [plain(each.state_dict()) for each in self._all_schedulers()],
            "scaler": plain(self.scaler.state_dict()) if self.scaler else None,
            "done": asdict(self.done),
            "evaluated": self.meetings,
            "scores": self.scores,
            "scheduled": self.scheduled,
            "order": self.order,
            "left_out": self.left_out,
            "ended": self.ended,
            "frozen": self._frozen(),
        }

    def _restore_trained(self, state: dict[str, Any], of: str = OTHERS) -> list[str]:
        """Take over what an optimizer step changes, and progress; return what arguments that changes."""
        schedulers = self._all_schedulers()
        changes = _restore_all("optimizers", self.optimizers, state, of, schedulers)
        changes += _restore_all("schedulers", schedulers, state, of, schedulers)
        if self.scaler is not None and state["scaler"]:
            changes += restoring.load("scaler", self.scaler, state["scaler"], of)
        self.done = Done(**state["done"])
        self.meetings, self.scores = state["evaluated"], dict(state["scores"])
        self.scheduled = state["scheduled"]
        self.order, self.left_out = dict(state.get("order", {})), state.get("left_out", 0)
        self.ended = tuple(state.get("ended", ()))  # as it was saved
        self.said, self.early = state.get("said", self.said), state.get("early", self.early)
        return changes

    def _frozen(self) -> list[int]:
        """Return the places of the parameters that are not trained."""
        return [place for place, each in enumerate(self.model.parameters()) if not each.requires_grad]

    def _freeze(self, frozen: Sequence[int]) -> None:
        """Train what the others train: the script may have unfrozen some of it in a step before."""
        for place, each in enumerate(self.model.parameters()):
            if each.requires_grad == (place in frozen):
                each.requires_grad_(place not in frozen)

    def _all_schedulers(self) -> list[LRScheduler]:
        return [*self.schedulers, *(each.scheduler for each in self.per_epoch)]

    def _user_state(self) -> dict[str, Any]:
        return {
            name: plain(dict(each) if isinstance(each, dict) else each.state_dict())
            for name, each in self.keep.items()
        }

    def _restore_kept(self, kept: dict[str, Any], of: str = OTHERS, new: Sequence[str] = ()) -> None:
        """Take over what the user keeps, but for `new` names. ValueError if there are others."""
        if kept.keys() != self.keep.keys() - set(new):
            raise ValueError(
                f"{of} keeps {sorted(kept)}, and Elastic(keep=...) has {sorted(self.keep)}: give the names "
                "that it keeps, or another checkpoint folder"
            )
        for name, saved in kept.items():
            restoring.load(f"keep[{name!r}]", self.keep[name], saved, of)

    def _parameters(self) -> list[Tensor]:
        settle(self.model)
        return [local(each.detach()) for each in self.model.parameters()]

    def _buffers(self) -> list[Tensor]:
        return [local(each.detach()) for each in self.model.buffers()]


def check_optimizers(model: nn.Module, optimizers: Sequence[Optimizer]) -> None:
    """Raise ValueError for what an optimizer trains and the model does not have: nobody would average it."""
    known = {id(each) for each in model.parameters()}
    for optimizer in optimizers:
        for number, group in enumerate(optimizer.param_groups):
            other = [tuple(each.shape) for each in group["params"] if id(each) not in known]
            if other:
                raise ValueError(
                    f"group {number} of {type(optimizer).__name__} trains parameters that the model does not "
                    f"have, of shape {other[0]}: workers would drift apart; make them a part of the model "
                    "(an nn.Module, or register_parameter)"
                )


def check_keep(keep: Mapping[str, Any]) -> None:
    """Raise TypeError for what cannot be kept."""
    for name, each in keep.items():
        if isinstance(each, GradScaler):
            raise TypeError(
                f"keep[{name!r}] is a GradScaler: give it as Elastic(scaler=...), which also uses it"
            )
        if not isinstance(each, (dict, Stateful)):
            raise TypeError(
                f"keep[{name!r}] is a {type(each).__name__}: give objects with state_dict and "
                "load_state_dict, or dicts, which are changed in place"
            )


def _restore_all(
    what: str, mine: Sequence[Any], state: Mapping[str, Any], of: str, schedulers: Sequence[LRScheduler]
) -> list[str]:
    if len(state[what]) != len(mine):
        raise ValueError(
            f"{of} has {len(state[what])} {what}, and Elastic(...) got {len(mine)}: give the same ones in "
            "the same order, or another checkpoint folder"
        )
    changes: list[str] = []
    for index, (each, saved) in enumerate(zip(mine, state[what], strict=True)):
        changes += restoring.load(f"{what.removesuffix('s')} {index}", each, saved, of, schedulers)
    return changes


def plain(value: Any) -> Any:
    """Return `value` with NumPy's scalars as Python's numbers: torch refuses to load others.

    A schedule that calls `np.cos` makes the learning rate such a scalar.
    """
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.generic):
        return value.item()
    if isinstance(value, dict):
        same = copy.copy(value)  # of the same class: a Counter stays one
        for key, each in value.items():
            same[key] = plain(each)
        return same
    return type(value)(map(plain, value)) if type(value) in (list, tuple) else value
