"""Slurm's sbatch scripts, and command lines of launchers: both are scripts that start a training."""

from __future__ import annotations

import re
from typing import Final

from elasticjob.cli.convert.allocation import Allocation, allocation, directives
from elasticjob.cli.convert.scripts import job_of, starts_a_training
from elasticjob.cli.convert.system import Marks, System

MARKS: Final = Marks(variables=((r"\$[({]?SLURM_NODEID", "NODE_RANK"), (r"(?:SLURM|PMI|PMIX|OMPI)_\w+", "")))
SLURM: Final = System(
    "Slurm sbatch script",
    (),
    marks=MARKS,
    knows=lambda source: re.search(r"^#SBATCH\b", source.text, re.MULTILINE) is not None,
    of_text=lambda source: job_of(source, allocation(iter(directives(source.text)))),
)
COMMAND_LINE: Final = System(
    "command line",
    (),
    marks=MARKS,
    knows=lambda source: bool(source.text) and starts_a_training(source.text),
    of_text=lambda source: job_of(source, Allocation()),
)
