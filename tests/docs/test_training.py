"""The script of docs/training.md runs as it stands, and uses every public name."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from elasticjob.trainer import torch as public
from tests.kit.waiting import PATIENCE

PAGE = Path(__file__).parents[2] / "docs" / "training.md"


@pytest.mark.story
def test_the_script_with_every_name_runs(tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    (script,) = [block for block in blocks if block.startswith("import torch\n")]
    assert all(re.search(rf"\b{name}\b", script) for name in public.__all__)
    assert len(public.__all__) <= 15
    (tmp_path / "train.py").write_text(script)
    done = subprocess.run(
        [sys.executable, tmp_path / "train.py"], capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 0, done.stderr
    losses = [float(found) for found in re.findall(r"'loss': ([\d.e-]+)", done.stdout)]
    assert len(losses) == 2
    assert losses[1] < losses[0]
