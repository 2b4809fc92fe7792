"""What trainings of tests share: lines of JSON, places where a worker waits to be killed, their parameters.

A worker stands still at a place for which there is a file in the folder $COUNTED; the file is gone then.
"""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn

FOLDER: Final = Path(os.environ.get("COUNTED", "."))


def say(**line: Any) -> None:
    """Print a line of this process."""
    print(json.dumps({"pid": os.getpid(), **line}), flush=True)


def stand(place: str, of: object) -> None:
    """Wait to be killed at a place, where a test wants that of this worker or node."""
    mark = FOLDER / f"{place}-{of}"
    if mark.exists():
        mark.unlink()
        say(stands=place)
        signal.pause()


def start(*modules: nn.Module) -> None:
    """Give the parameters their first values."""
    with torch.no_grad():
        for module in modules:
            for parameter in module.parameters():
                values = torch.linspace(-1, 1, parameter.numel(), dtype=parameter.dtype)
                parameter.copy_(values.view_as(parameter))


def numbers(model: nn.Module) -> list[float]:
    """Return the parameters; all workers that share a divided model call it together."""
    tensors = (each.full_tensor() if hasattr(each, "full_tensor") else each for each in model.parameters())
    return [number for each in tensors for number in each.flatten().tolist()]
