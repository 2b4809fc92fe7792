"""When a node stops to wait for a master that is gone, and who is next."""

from __future__ import annotations

import pytest

from elasticjob.api.rpc.nodes import Heir, Succession
from elasticjob.trainer.agent.shell.succession import heirs, is_next

LEFT = Succession(
    host="a", heirs=tuple(Heir(node=node, address=f"10.0.0.{node}") for node in "bcd"), snapshot="{}"
)


@pytest.mark.parametrize(
    ("silent", "found"),
    [(0.0, ""), (1.9, ""), (2.0, "b"), (4.9, "b"), (5.0, "bc"), (8.0, "bcd"), (900.0, "bcd")],
)
def test_heirs_are_tried_one_after_another(silent: float, found: str) -> None:
    assert "".join(heir.node for heir in heirs(LEFT, silent)) == found
    assert "".join(node for node in "bcd" if is_next(node, LEFT, silent)) == found[-1:]


@pytest.mark.parametrize(("silent", "found"), [(1.9, ""), (2.0, "bcd"), (900.0, "bcd")])
def test_without_a_world_to_save_the_first_that_can_is_next(silent: float, found: str) -> None:
    assert "".join(node for node in "bcd" if is_next(node, None, silent)) == found
