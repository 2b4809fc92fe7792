"""The systems that `elasticjob convert` knows: one file each, their order, and their kinds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from elasticjob.cli.convert.system import System
from elasticjob.cli.convert.systems.dlrover import DLROVER
from elasticjob.cli.convert.systems.easydl import EASYDL
from elasticjob.cli.convert.systems.etoperator import ETOPERATOR
from elasticjob.cli.convert.systems.hyperpod import HYPERPOD
from elasticjob.cli.convert.systems.jaxjob import JAXJOB
from elasticjob.cli.convert.systems.mpijob import MPIJOB
from elasticjob.cli.convert.systems.paddle import PADDLE
from elasticjob.cli.convert.systems.pytorchjob import PYTORCHJOB
from elasticjob.cli.convert.systems.ray import RAY
from elasticjob.cli.convert.systems.refused import REFUSED
from elasticjob.cli.convert.systems.slurm import COMMAND_LINE, SLURM
from elasticjob.cli.convert.systems.tfjob import TFJOB
from elasticjob.cli.convert.systems.trainjob import TRAINJOB
from elasticjob.cli.convert.systems.volcano import VOLCANO
from elasticjob.cli.errors import Exit, Failure
from elasticjob.kube.objects.kinds import Kind, Manifest

SYSTEMS: Final[tuple[System, ...]] = (
    *REFUSED,
    DLROVER,
    EASYDL,
    PADDLE,
    ETOPERATOR,
    PYTORCHJOB,
    TFJOB,
    MPIJOB,
    JAXJOB,
    TRAINJOB,
    HYPERPOD,
    VOLCANO,
    RAY,
    SLURM,
    COMMAND_LINE,
)
"""The first that recognises a document converts it."""


def kinds_and_name(wanted: str) -> tuple[Sequence[Kind[Manifest]], str]:
    """Return the kinds that are meant, in the order in which they are tried, and the name. Raises Failure."""
    kind, slash, name = wanted.partition("/")
    known = [each for system in SYSTEMS for each in system.kinds]
    found = [each for each in known if kind.lower() in _spellings(each)]
    if not slash or not name or "/" in name:
        raise Failure(
            f"{wanted!r} is not KIND/NAME", next_step="write it as pytorchjob/digits", code=Exit.USAGE
        )
    if not found:
        names = ", ".join(sorted({each.resource for each in known}))
        raise Failure(
            f"{kind!r} is no kind that can be converted", next_step=f"write one of {names}", code=Exit.USAGE
        )
    return found, name


def _spellings(kind: Kind[Manifest]) -> tuple[str, ...]:
    return (
        kind.name.lower(),
        kind.plural,
        kind.resource,
        f"{kind.name.lower()}.{kind.group}",
        f"{kind.plural}.{kind.version}.{kind.group}",
    )
