"""Work of all workers together between two steps: again in each world that a loss forms, until it is done."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final

from elasticjob.trainer.link.pulse import Phase
from elasticjob.trainer.loop import whereabouts
from elasticjob.trainer.loop.whereabouts import At
from elasticjob.trainer.torch.run import Run
from elasticjob.trainer.torch.state import plain
from elasticjob.trainer.torch.world.values import check_mean, decode_value, encode_value, mean_of

EARLY: Final = 1024  # meetings before the first step whose results are kept for newcomers


OWN: Final = (
    "A worker was lost while others were in a collective of the script's own, which does not survive that: "
    "use elastic.mean or elastic.gather, which do, or give Elastic checkpoint= to lose less."
)


def note_losses(run: Run) -> None:
    """Add a note to what ends this script if that is the loss of a peer outside of steps and meetings."""
    before = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if isinstance(error, RuntimeError) and run.membership.broken_by(error):
            error.add_note(OWN)
        before(kind, error, trace)

    sys.excepthook = hook


def meet(run: Run, at: At, attempt: Callable[[], None]) -> None:
    """Call `attempt`, in which all workers take part and which changes the state, until it is done.

    A worker that loses a peer in it, and finds that others have finished, takes over their result.
    """
    membership, state = run.membership, run.state
    if membership.at is not At.ELSEWHERE:
        inside = "a step" if membership.at is At.STEP else f"elastic.{membership.at.name.lower()}"
        raise RuntimeError(
            f"elastic.{at.name.lower()} was called inside of {inside}: call it outside of `with step`, at "
            "the same place on all workers"
        )
    number = state.meetings + 1
    membership.at = at
    try:
        while state.meetings < number:
            try:
                attempt()
            except RuntimeError as error:
                membership.survive(error)
            else:
                state.meetings = number
    finally:
        membership.at = At.ELSEWHERE


def exchange(run: Run, data: bytes) -> list[bytes]:
    """Return the `data` of every worker. ValueError if they are in other meetings."""
    run.line.say(Phase.REDUCING)
    with run.line.inside():
        said = run.peers.exchange(bytes([run.membership.at]) + data)
    run.line.say(Phase.OUTSIDE)
    whereabouts.check(run.state.done.step, [each[0] for each in said])
    return [each[1:] for each in said]


def mean(run: Run, value: Any) -> Any:
    """Return the mean of a value of each worker."""
    given = plain(value)
    check_mean(given)
    return mean_of(_values(run, At.MEAN, given))


def gather(run: Run, value: Any) -> list[Any]:
    """Return a value of each worker, in the order of ranks."""
    return _values(run, At.GATHER, plain(value))


def _values(run: Run, at: At, value: Any) -> list[Any]:
    mine, state = encode_value(value), run.state
    if run.membership.is_newcomer():
        said = _earlier(run, at)
    else:

        def attempt() -> None:
            state.said = exchange(run, mine)
            if run.reading.loader is None and len(state.early) < EARLY:
                state.early = [*state.early, (int(at), state.said)]

        meet(run, at, attempt)
        said = state.said
    return [decode_value(each, run.device) for each in said]


def _earlier(run: Run, at: At) -> list[bytes]:
    """Return what the others exchanged at this place of the script, before their first step."""
    run.repeated += 1
    at_, said = run.state.early[run.repeated - 1] if run.repeated <= len(run.state.early) else (-1, [])
    if at_ != at:
        raise RuntimeError(
            f"this worker is new to a running job, whose workers did not call elastic.{at.name.lower()} at "
            "this place before their first step: call evaluate, mean and gather at the same places on all "
            "workers"
        )
    return said
