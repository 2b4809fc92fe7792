"""The model of speed: known costs are found again, and it is silent where it would guess."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pytest

from elasticjob.api.sizes.facts import Sample, Use
from elasticjob.sizing.rules.throughput import Setting, best, fit

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)


def sampled(
    costs: tuple[float, ...], settings: list[Setting], noise: float = 0.0, each: int = 5
) -> tuple[Sample, ...]:
    """Samples of a job whose step time follows the costs."""
    chance = random.Random(7)
    found = []
    for number, setting in enumerate(setting for setting in settings for _ in range(each)):
        time = sum(cost * part for cost, part in zip(costs, setting.costs, strict=True))
        speed = setting.workers / time * (1 + noise * chance.uniform(-1, 1))
        workers = tuple(Use(f"w{i}", "worker", 1.0, 1, setting.cpu, 1) for i in range(setting.workers))
        servers = tuple(Use(f"p{i}", "ps", 1.0, 1, setting.server_cpu, 1) for i in range(setting.servers))
        at = NOW + timedelta(minutes=number)
        found.append(Sample(at, setting.workers, speed, speed, workers + servers))
    return tuple(found)


ALL_REDUCE = [Setting(1, 4), Setting(2, 4), Setting(4, 4), Setting(4, 8), Setting(8, 8)]
SEEN = ((2, 4, 1, 4), (4, 4, 1, 8), (4, 8, 2, 8), (8, 8, 2, 4), (6, 2, 2, 2), (9, 4, 3, 4))
SERVERS = [Setting(*each) for each in SEEN]


@pytest.mark.parametrize(
    ("costs", "settings"), [((0.05, 0.4, 0.3), ALL_REDUCE), ((0.02, 0.4, 0.1, 0.05), SERVERS)]
)
def test_known_costs_are_found_again(costs: tuple[float, ...], settings: list[Setting]) -> None:
    model = fit(sampled(costs, settings))
    assert model is not None
    assert model.costs == pytest.approx(costs, rel=0.05)
    noisy = fit(sampled(costs, settings, noise=0.05))
    assert noisy is not None
    for setting in settings:
        true = sum(cost * part for cost, part in zip(costs, setting.costs, strict=True))
        assert noisy.step_time(setting) == pytest.approx(true, rel=0.1)


@pytest.mark.parametrize(
    "settings", [[Setting(2, 4)], [Setting(1, 4), Setting(2, 4), Setting(4, 4)]], ids=["one", "three"]
)
def test_with_too_few_settings_there_is_no_model(settings: list[Setting]) -> None:
    assert fit(sampled((0.05, 0.4, 0.3), settings)) is None


def test_what_the_model_does_not_explain_has_no_model() -> None:
    assert fit(sampled((0.05, 0.4, 0.3), ALL_REDUCE, noise=0.9)) is None


@pytest.mark.parametrize(
    ("costs", "count"),
    [
        ((0.0, 1.0, 0.0), 16),  # each worker brings what the first brought; 16 is twice what was seen
        ((0.01, 0.01, 5.0), 1),  # the second costs more than it brings
    ],
)
def test_as_many_workers_as_pay(costs: tuple[float, ...], count: int) -> None:
    model = fit(sampled(costs, ALL_REDUCE))
    assert model is not None
    assert best(model, range(1, 65), pays=0.2) == count
    assert "step time fitted with costs" in str(model)
