"""Insert an example's training script into its manifest, so that one `kubectl apply` is enough."""

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
