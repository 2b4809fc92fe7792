"""Steps of a master's history: each does or checks something, and a wrong one shows what there is."""

from __future__ import annotations

import pytest

from lab.virtual.master import Step, forms, hears, played, wait


@pytest.mark.parametrize(
    "step", [forms, wait, hears("worker-0"), hears("worker-0", says=""), wait(0), wait(-3), wait(0.4)]
)
def test_a_step_that_neither_does_nor_checks_anything_is_an_error(step: Step) -> None:
    with pytest.raises((TypeError, ValueError)):
        played("worker-0").play(step)


def test_a_wrong_step_shows_what_there_is() -> None:
    with pytest.raises(AssertionError, match=r"'worker-0'.*'worker-1'"):
        played("worker-0").play(forms("worker-1"))
