"""The start of a training from what another has trained: all workers read it, or none begins."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from elasticjob.trainer.checkpoint import part
from elasticjob.trainer.checkpoint.choice import Chosen
from elasticjob.trainer.checkpoint.opening import Attempt, Knowledge, Met, NotRead, Places, Readers
from elasticjob.trainer.checkpoint.part import Damaged, Head, Save
from elasticjob.trainer.checkpoint.pieces import THIS
from elasticjob.trainer.checkpoint.reading import Reading
from elasticjob.trainer.checkpoint.rest import pointer, printed
from elasticjob.trainer.checkpoint.sources import InStorage, Source
from elasticjob.trainer.checkpoint.storage import Manifest, Storage, Trouble, printable
from elasticjob.trainer.torch import imported, saved
from elasticjob.trainer.torch.saving.named import Names
from elasticjob.trainer.torch.saving.targets import Own, targets
from elasticjob.trainer.torch.saving.tensors import Tensors

Where = str | os.PathLike[str]


@dataclass(frozen=True)
class Start(Attempt):
    """A try to read files of others, or another training's newest checkpoint, into `models` with names."""

    models: Mapping[str, Collection[str]]
    opened: ExitStack

    @property
    def _of(self) -> str:
        return f"start {printable(self.places.where)}"

    def _open(self) -> Met:
        """Tell, as rank 0, what is where, by the names that the model has here."""
        if self.readers.rank:
            return Met()
        files = imported.opened(self.places.where)
        if files is None:
            try:
                storage, manifest = saved.found(self.places.where)
            except saved.NoCheckpoint as error:
                raise ValueError(f"{error}: give {imported.KINDS}") from error
            self.opened.enter_context(storage.pinned(manifest.step))
            return Met(heads=tuple(storage.heads(manifest)), manifest=manifest)
        if len(self.models) != 1:
            count = len(self.models)
            raise ValueError(f"{THIS} is of one model, and the state has {count}: give {{name: path, …}}")
        ((owner, mine),) = self.models.items()
        return Met(heads=tuple(files.of(owner, mine).heads))

    def _source(self, heads: Sequence[Head], manifest: Manifest | None) -> Source:
        if manifest is not None:
            return InStorage(Storage(self.places.where), manifest, heads)
        return (imported.opened(self.places.where) or imported.Files([])).like(heads)


def starts(
    start: Where | Mapping[str, Where], state: Mapping[str, Any]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each path, and the models and optimizers that begin with what is there."""
    able = {name: each for name, each in state.items() if isinstance(each, (nn.Module, Own, Optimizer))}
    for name, where in start.items() if isinstance(start, Mapping) else [("", start)]:
        if name and name not in able:
            raise ValueError(f"start has {name!r}, and the models of the state are {', '.join(able)}")
        yield os.fspath(where), {name: able[name]} if name else able


def begin(
    where: str,
    into: Mapping[str, Any],
    form: Tensors,
    names: Names,
    readers: Readers,
    world: int,
    *,
    cast: bool,
) -> tuple[dict[str, Any], Sequence[str]]:
    """Return the state with which `into` begins, and patterns of what it may lack.

    All workers call it at once. ValueError on all of them if it cannot be used, or does not fit one.
    """
    spares = [*readers.spares]

    def given(rest: Mapping[str, Any], tensors: Sequence[part.Tensor]) -> dict[str, Tensor]:
        mine = {pointer("", name): each for name, each in into.items() if name in rest}
        if not mine:
            raise ValueError(f"{THIS} has {', '.join(map(str, rest))}, and none of {', '.join(into)}")
        there = {each.name for each in tensors}
        spares.extend(f"{name}.*" for name in rest if name not in into)
        spares.extend(name for owner, each in mine.items() for name in tied(each, owner, there))
        return targets(mine, tensors, names, spares, cast=cast)

    def read(source: Source, world: int) -> Reading:
        return form.reading(source, readers.rank, world, given)

    places = Places(where, None, None, "", "", "", first=False)
    told = [Knowledge((), "")] * world
    models = {name: [*each.state_dict()] for name, each in into.items() if isinstance(each, (nn.Module, Own))}
    with ExitStack() as opened:
        readers = replace(readers, spares=spares)
        attempt = Start(places, readers, Chosen(Save(0, 0)), (), told, models, opened)
        try:
            state = attempt.read(read, opened)()
        except NotRead as error:
            raise (Damaged if error.damaged else Trouble)(f"start {where}: {error}") from error
    return {name: each for name, each in state.items() if name in into}, spares


def tied(value: Any, owner: str, there: Collection[str]) -> list[str]:
    """Return the names of parameters that a model has by a second name, too, which is there."""
    if not isinstance(value, nn.Module):
        return []
    ids = {pointer(owner, name): id(each) for name, each in value.named_parameters(remove_duplicate=False)}
    known = {of for name, of in ids.items() if name in there}
    return [printed(name) for name, of in ids.items() if name not in there and of in known]
