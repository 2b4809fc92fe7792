"""Evaluation by all workers together: each batch is computed by one of them, a lost one's by another."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec
import torch
from torch import Tensor

from elasticjob.trainer.link.pulse import Phase
from elasticjob.trainer.loop.whereabouts import At
from elasticjob.trainer.records.batch import bounds
from elasticjob.trainer.records.sampler import Piece
from elasticjob.trainer.torch.meetings import exchange, meet
from elasticjob.trainer.torch.records.data import Loader, to_device
from elasticjob.trainer.torch.run import Run
from elasticjob.trainer.torch.saving.tree import settle

Score = Callable[[Any], Mapping[str, float | Tensor]]


class Scores(msgspec.Struct, frozen=True):
    """The scores of one batch: `records` of them, by name their mean."""

    index: int
    records: int
    means: dict[str, float]


_encode = msgspec.msgpack.Encoder().encode
_indices = msgspec.msgpack.Decoder(list[int]).decode
_scored = msgspec.msgpack.Decoder(list[Scores]).decode


def evaluate(run: Run, data: Loader, score: Score) -> dict[str, float]:
    """Return the mean of each score over all records of `data`."""
    if run.membership.is_newcomer():
        return dict(run.state.scores)
    pieces, mine = _pieces(run, data), dict[int, Scores]()

    def attempt() -> None:
        with _evaluating(run, data):
            run.state.scores = _scores(run, data, pieces, score, mine)

    meet(run, At.EVALUATE, attempt)
    return dict(run.state.scores)


def _scores(
    run: Run, data: Loader, pieces: list[Piece], score: Score, mine: dict[int, Scores]
) -> dict[str, float]:
    """Compute the batches that nobody has yet, each worker its part; `mine` is what this one has."""
    with run.line.inside():  # the first worker's running statistics are those of all
        run.peers.unify(list(run.state.model.buffers()))
    said = exchange(run, _encode(sorted(mine)))
    known = {index for each in said for index in _indices(each)}
    left = [piece for piece in pieces if piece.index not in known]
    rank, size = run.peers.place_in_exchange()
    part = left[rank::size]
    first = rank - rank % run.reduction.together  # of those that compute each batch together
    idle = len(left[first::size]) - len(part)
    read = data.read(part + left[:1] * idle)
    for number, batch in enumerate(read):
        run.peers.check()
        means = {name: float(value) for name, value in score(to_device(batch, run.device)).items()}
        if number < len(part):
            piece = part[number]
            mine[piece.index] = Scores(piece.index, piece.count, means)
    said = exchange(run, _encode(list(mine.values())))
    return means_of([each for part_ in said for each in _scored(part_)])


def means_of(scored: list[Scores]) -> dict[str, float]:
    """Return the mean over all records; exact, so that it does not depend on who computed what."""
    total = sum(each.records for each in scored)
    return {
        name: math.fsum(each.means[name] * each.records for each in scored) / total
        for name in (scored[0].means if scored else ())
    }


def _pieces(run: Run, data: Loader) -> list[Piece]:
    """Return the batches of an evaluation: as large as the largest micro-batch of a step."""
    sampler = data.sampler(run.peers.place.batch_slots)
    largest = -(-sampler.batch // sampler.pieces)
    cut = bounds(sampler.records, -(-sampler.records // largest))
    return [Piece(index, places, len(places)) for index, places in enumerate(cut)]


@contextmanager
def _evaluating(run: Run, data: Loader) -> Iterator[None]:
    """Let the model evaluate for the duration of a block, which reads `data`."""
    model = run.state.model
    training = [module for module in model.modules() if module.training]
    run.line.say(Phase.OUTSIDE)
    run.evaluating = True
    run.reading.forget(data)
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        run.evaluating = False
        settle(model)
        for module in training:
            module.training = True
