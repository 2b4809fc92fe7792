"""The example's manifest holds its training script: one `kubectl apply` is enough. Here it is put in."""

from __future__ import annotations

from pathlib import Path
from textwrap import indent

MARK = "  train.py: |\n"


def example_job(folder: Path) -> str:
    """Return `job.yaml` of `folder` with the present `train.py` as the last value of its ConfigMap."""
    head, mark, _ = (folder / "job.yaml").read_text().partition(MARK)
    if not mark:
        raise ValueError(f"{folder / 'job.yaml'} has no line {MARK!r} to put the script after")
    return head + mark + indent((folder / "train.py").read_text(), "    ")
