"""The systems that `elasticjob convert` knows: one file each, and the order in which they are asked."""

from __future__ import annotations

from typing import Final

from elasticjob.cli.convert.system import System
from elasticjob.cli.convert.systems.dlrover import DLROVER
from elasticjob.cli.convert.systems.easydl import EASYDL
from elasticjob.cli.convert.systems.etoperator import ETOPERATOR
from elasticjob.cli.convert.systems.paddle import PADDLE
from elasticjob.cli.convert.systems.pytorchjob import PYTORCHJOB
from elasticjob.cli.convert.systems.torchelastic import TORCHELASTIC

SYSTEMS: Final[tuple[System, ...]] = (
    TORCHELASTIC,
    DLROVER,
    EASYDL,
    PADDLE,
    ETOPERATOR,
    PYTORCHJOB,
)
"""The first that recognises a document converts it."""
