"""Alerts over played lives: some of those of `make alerts`."""

from __future__ import annotations

import pytest

from tests.monitoring.lives import BROKEN, BY_HAND, ORDINARY, Broken, fired
from tests.monitoring.test_rules import ALERTS, needs_promtool

QUICK = [each for each in BROKEN if each.alert in ("ElasticJobPending", "ElasticJobMasterUnreachable")]


def test_each_alert_has_a_broken_life_and_a_time() -> None:
    assert {*BY_HAND, *(each.alert for each in BROKEN)} == ALERTS.keys()


@needs_promtool
def test_no_alert_fires_while_a_first_machine_is_on_its_way() -> None:
    assert fired(*ORDINARY["a first machine that comes after 12 minutes"]) == {}


@needs_promtool
@pytest.mark.parametrize("broken", QUICK, ids=lambda each: each.alert)
def test_an_alert_fires_in_time_and_alone(broken: Broken) -> None:
    found = fired(broken.history, broken.at + broken.within + 1, broken.away)
    assert broken.at < found[broken.alert] <= broken.at + broken.within
    assert found.keys() <= {broken.alert, *broken.beside}
