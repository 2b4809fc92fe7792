"""The systems that `elasticjob convert` knows: one file each, and the order in which they are asked."""

from __future__ import annotations

from typing import Final

from elasticjob.cli.convert.system import System
from elasticjob.cli.convert.systems.dlrover import DLROVER
from elasticjob.cli.convert.systems.easydl import EASYDL
from elasticjob.cli.convert.systems.etoperator import ETOPERATOR
from elasticjob.cli.convert.systems.hyperpod import HYPERPOD
from elasticjob.cli.convert.systems.jaxjob import JAXJOB, OTHERS
from elasticjob.cli.convert.systems.mpijob import MPIJOB
from elasticjob.cli.convert.systems.paddle import PADDLE
from elasticjob.cli.convert.systems.pytorchjob import PYTORCHJOB
from elasticjob.cli.convert.systems.ray import RAY
from elasticjob.cli.convert.systems.slurm import COMMAND_LINE, SLURM
from elasticjob.cli.convert.systems.tfjob import TFJOB
from elasticjob.cli.convert.systems.torchelastic import TORCHELASTIC
from elasticjob.cli.convert.systems.trainjob import TRAINJOB
from elasticjob.cli.convert.systems.volcano import VOLCANO

SYSTEMS: Final[tuple[System, ...]] = (
    TORCHELASTIC,
    DLROVER,
    EASYDL,
    PADDLE,
    ETOPERATOR,
    PYTORCHJOB,
    TFJOB,
    MPIJOB,
    JAXJOB,
    OTHERS,
    TRAINJOB,
    HYPERPOD,
    VOLCANO,
    RAY,
    SLURM,
    COMMAND_LINE,
)
"""The first that recognises a document converts it."""
