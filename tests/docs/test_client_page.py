"""docs/client.md: its Python blocks, one after the other, are a program that runs on a cluster."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Final

import pytest

from elasticjob.cli.laptop.laptop import operator_of
from lab.clusters.whole import WholeClusters
from lab.jobs.job import TRAINS
from lab.processes import run

PAGE: Final = Path(__file__).parents[2] / "docs" / "client.md"
SAID: Final = (
    "Succeeded [",
    "the weight is ",
    "uses_its_module uses rate of the module around it; import or define it inside the function",
    "rank 1 of 2 ['--rate', '0.5']",
    "hello Succeeded 2/2",
    "Phase:      Succeeded",
    "ElasticJob default/absent | elasticjob list shows",
)
"""What it must print."""


@pytest.mark.story
async def test_the_blocks_of_the_page_run(whole_cluster: WholeClusters, tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    program = tmp_path / "page.py"
    program.write_text("\n".join(blocks))
    async with (
        whole_cluster(tmp_path / "cluster", supervisor=TRAINS) as cluster,
        operator_of(cluster.kubeconfig, tmp_path),
    ):
        environ = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig)}
        code, printed = await run(sys.executable, program, environ=environ, cwd=tmp_path)
    assert code == 0, printed
    assert [words for words in SAID if words not in printed] == [], printed
