"""The outcome of converting one manifest, script or command line."""

from __future__ import annotations

from dataclasses import replace

from elasticjob.cli.convert.conversion import Outcome, outcome
from elasticjob.cli.convert.reading import sources
from elasticjob.cli.convert.systems import SYSTEMS


def converted(text: str, name: str = "job.yaml", **files: str) -> Outcome:
    """Convert a text; `files` are those that it may name."""
    [source] = sources(name, text)
    return outcome(replace(source, files=files) if files else source, SYSTEMS)
