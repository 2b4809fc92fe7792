"""Four of the broken jobs of `make troubles`, whole: doctor names the cause, and finds it gone afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.diagnoses.__main__ import bench, chosen, results

SOME = ("claim missing", "image misspelled", "finalizer on the job", "checkpoints reach no storage")


@pytest.mark.story
async def test_doctor_names_causes_and_finds_them_gone(tmp_path: Path) -> None:
    async with bench(tmp_path, "devcluster") as here:
        rows = [row async for row in results(here, chosen(SOME, "devcluster"))]
    assert {row.name: row.wrong for row in rows} == dict.fromkeys(SOME, ())
