"""The failures of a node's workers: what each costs, when another start is hopeless, and their sentences."""

from __future__ import annotations

import re
import signal
from itertools import accumulate, pairwise, takewhile

from elasticjob.api.rpc.rendezvous import Recovery
from elasticjob.trainer.agent.group import Group, WorkerFailure
from elasticjob.trainer.agent.termination import CANNOT_START, OUT_OF_MEMORY

ECHOES = 3  # failures allowed per restart in the budget, including those caused by other nodes
SURE = re.compile(
    r"^(?:\w+\.)*(?:Import|ModuleNotFound|Syntax|Indentation|Tab|Name|UnboundLocal|Attribute|Type|Value|Key|Index"
    r"|Assertion|FileNotFound|NotADirectory|IsADirectory|Permission)Error\b|^cannot start |^\S+: error: "
)
"""Last lines of a program that ends in the same way when it is started again, argparse's among them."""
UNSURE = re.compile(r"connect|time[d ]*out|unreachable|resolv|temporar", re.IGNORECASE)
"""Words of an error that may have come over a network, whatever its class."""
OF_A_MACHINE = re.compile(
    r"cuda|cudnn|cublas|\bhip\b|nccl|rccl|gloo|c10d|peer|\becc\b|device|memory"
    r"|no space left|input/output|\[Errno (?:5|28)\]",
    re.IGNORECASE,
)
"""Words of an error that another machine, or other peers, may not have."""
VARIES = re.compile(r"0x[0-9a-f]+|\d+(?:[.:]\d+)*", re.IGNORECASE)
"""The parts of an error message that vary: numbers and addresses."""
RAISED = 1  # Python's exit code after an exception
NOT_FOUND = frozenset({126, 127})  # a shell's exit codes for a program that is none, or is missing
UNDONE = "the others have finished, and without checkpoint= it would train the whole job again"
WORLD = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")  # what an elastic worker does not start with


def why_hopeless(group: Group) -> str:
    """Return why a restart of the workers would not help, empty if it may."""
    if group.terms.in_pod and any(failed.out_of_memory and not failed.reported for failed in group.failures):
        return "another start here would have no more memory, so this pod ends"
    if group.ended and not group.copies and group.undone:
        return UNDONE
    last = group.failures[-1:]
    since = (each for each in reversed(group.failures) if each.step == last[0].step)
    fruitless = restarts(tuple(takewhile(lambda failed: failed.fruitless, since)))
    if 0 < group.terms.tries <= fruitless:
        return "it failed twice without any progress, so it is not started again here"
    known = recent(group)
    spent = tuple(failed for failed in known if failed.round not in free_rounds(known))
    charged = restarts(tuple(failed for failed in spent if not failed.echo))
    if charged > group.terms.max_restarts:
        return f"that was failure {charged}, and --max-restarts is {group.terms.max_restarts}"
    if restarts(spent) > ECHOES * (group.terms.max_restarts + 1):
        return f"it failed {restarts(spent)} times beside failures of other nodes"
    return ""


def recent(group: Group) -> tuple[WorkerFailure, ...]:
    """Return the failures that count: those since the last long time without any."""
    if not group.terms.forgive:
        return group.failures
    gaps = (later.at - earlier.at for earlier, later in pairwise(group.failures))
    forgiven = max((index for index, gap in enumerate(gaps, 1) if gap >= group.terms.forgive), default=0)
    return group.failures[forgiven:]


def free_rounds(failures: tuple[WorkerFailure, ...]) -> frozenset[int]:
    """Return the rounds that cost no restart: one was killed for a hang after steps since the last failure.

    A slow worker may be taken for one that hangs, any number of times in a long training.
    """
    before = [0, *accumulate((failed.step for failed in failures), max)]
    hung = (pair for pair in zip(failures, before, strict=False) if pair[0].hung)
    return frozenset(failed.round for failed, step in hung if failed.step > step)


def restarts(failures: tuple[WorkerFailure, ...]) -> int:
    """Return how many restarts `failures` cost, as torchrun counts: workers of one round fail together.

    Before the first round each worker is started again by itself, and the unluckiest one counts.
    """
    before = [failed.slot for failed in failures if not failed.round]
    rounds = {failed.round for failed in failures if failed.round}
    return len(rounds) + max((before.count(slot) for slot in before), default=0)


def may_be_an_echo(group: Group, failed: WorkerFailure) -> bool:
    """Whether a script may have failed only because a peer on another node was lost."""
    alone = group.world is None or group.world.count == 1
    return failed.code > 0 and not (alone or failed.fruitless) and group.recovery is Recovery.RESTART


def reason_of(group: Group, failed: WorkerFailure) -> str:
    """Return the reason of an end because of a worker, for the operator."""
    if failed.out_of_memory:
        return OUT_OF_MEMORY
    return CANNOT_START if cannot_start(group) else "WorkerFailed"


def cannot_start(group: Group) -> bool:
    """Whether the last workers failed before any progress, in the same way, as they would anywhere."""
    last = group.failures[-2:]
    return len({way(failed) for failed in last}) == 1 and all(map(is_sure, last))


def is_sure(failed: WorkerFailure) -> bool:
    """Whether a worker that made no progress would fail like this again."""
    sure = SURE.search(bare(failed)) and not UNSURE.search(failed.message)
    return failed.fruitless and (bool(sure) or failed.code in NOT_FOUND)


def way(failed: WorkerFailure) -> str:
    """Return in which way a worker ended: the error without what varies, and its frame."""
    return f"{VARIES.sub('#', bare(failed))} {failed.frame}".strip()


def ends_anywhere(group: Group, failed: WorkerFailure) -> bool:
    """Whether a worker raised an exception before any progress that it would raise on any machine.

    Where the user gave a number of restarts, that alone says how often it is started again.
    """
    message = failed.message
    elsewhere = UNSURE.search(message) or OF_A_MACHINE.search(message) or not failed.frame
    return failed.fruitless and failed.code == RAISED and not elsewhere and group.terms.tries > 0


def bare(failed: WorkerFailure) -> str:
    """Return the last line of a worker without the rank that torch writes before it."""
    return re.sub(r"^\[rank\d+\]: ", "", failed.message)


def hint(group: Group, failed: WorkerFailure) -> str:
    """Return what to do if a script imports Elastic, and is none that uses it."""
    if group.recovery is Recovery.IN_PROCESS and not failed.elastic and any(map(failed.message.count, WORLD)):
        return (
            "; it was started without a rank because it imports Elastic: if it makes none, run it with "
            "--recovery restart; if it divides its model, give fully_shard mesh=node_mesh()"
        )
    return ""


def how_it_ended(failed: WorkerFailure) -> str:
    """Return the exit code or signal of a worker in words."""
    if failed.hung:
        return f"was killed: {failed.message}"
    if failed.out_of_memory:
        return f"was out of memory and killed by the kernel: {failed.out_of_memory}"
    if failed.code < 0:
        return f"was killed by {signal_name(-failed.code)}"
    return f"failed with exit code {failed.code}" + (f": {failed.message}" if failed.message else "")


def said_last(failed: WorkerFailure) -> str:
    """Return what the master is told about the end of a worker."""
    return f"out of memory: {failed.out_of_memory}" if failed.out_of_memory else failed.message


def signal_name(number: int) -> str:
    """Return the name of a signal."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
