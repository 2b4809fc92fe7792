"""Three converted jobs run as the systems that they come from would run them; `make converted` has all."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.converted import played
from lab.jobs.site import Site

pytestmark = [pytest.mark.story, pytest.mark.asyncio(loop_scope="module")]
NAMES = ("kubeflow/labels-of-jobset.yaml", "scripts/what-srun-starts.sh", "volcano/volcanos-volumes.yaml")


async def test_converted_jobs_have_the_ranks_arguments_and_mounts_that_were_meant(
    site: Site, tmp_path: Path
) -> None:
    rows = await played(site, tmp_path, NAMES)
    assert {name: problem for name, (_, problem) in rows.items()} == dict.fromkeys(NAMES, "")
