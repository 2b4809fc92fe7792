"""Slurm's sbatch scripts, and command lines of launchers: both are scripts that start a training."""

from __future__ import annotations

import re
from typing import Final

from elasticjob.cli.convert.allocation import Allocation, allocation, directives
from elasticjob.cli.convert.scripts import job_of, starts_a_training
from elasticjob.cli.convert.system import Conversion, Source
from elasticjob.kube.objects.kinds import Kind, Manifest


class Slurm:
    """Scripts for sbatch."""

    NAME = "Slurm sbatch script"
    KINDS: tuple[Kind[Manifest], ...] = ()

    def recognises(self, source: Source) -> bool:
        """Whether a text has directives for sbatch."""
        return re.search(r"^#SBATCH\b", source.text, re.MULTILINE) is not None

    def convert(self, source: Source) -> Conversion:
        """Return the job of the script's first training. Raises Unconvertible if it starts none."""
        return job_of(source, allocation(iter(directives(source.text))))


class CommandLine:
    """Command lines of launchers, and scripts that call one."""

    NAME = "command line"
    KINDS: tuple[Kind[Manifest], ...] = ()

    def recognises(self, source: Source) -> bool:
        """Whether a text calls a launcher."""
        return bool(source.text) and starts_a_training(source.text)

    def convert(self, source: Source) -> Conversion:
        """Return the job of the first training. Raises Unconvertible if its script is missing."""
        return job_of(source, Allocation())


SLURM: Final = Slurm()
COMMAND_LINE: Final = CommandLine()
