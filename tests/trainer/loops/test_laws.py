"""Some cells of the table LOOPS, and the docs that have it: `make laws` plays all."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.trainer.loops.laws import CHECKS
from tests.trainer.loops.loops import LAWS, LOOPS, table

ROWS = {loop.name: loop for loop in LOOPS}


def test_the_docs_have_the_table() -> None:
    page, wanted = (" ".join(text.split()) for text in (Path("docs/training.md").read_text(), table()))
    assert wanted in page, f"docs/training.md has to have\n{table()}"


def test_each_law_is_played_and_each_exception_has_a_reason() -> None:
    assert CHECKS.keys() == LAWS.keys()
    assert all(loop.not_promised.keys() <= LAWS.keys() for loop in LOOPS)


@pytest.mark.story
@pytest.mark.parametrize(("loop", "law"), [("store", "code"), ("jax", "code")])
def test_a_cell_of_the_table(tmp_path: Path, loop: str, law: str) -> None:
    CHECKS[law](ROWS[loop], tmp_path)
