"""The model of a step, and the batch that it chooses by the noise of gradients."""

from __future__ import annotations

import pytest

from benchmarks.cluster.efficiency import Batches, Measurement, Noise, configure, fit


def test_the_model_of_a_step_finds_what_made_the_times() -> None:
    def times(machines: int, count: int, local: int) -> Measurement:
        compute = 0.02 + 0.01 * local
        sync = 0.0 if count == 1 else (0.01 if machines == 1 else 0.1) + 0.005 * (count - 2)
        return Measurement(machines, count, local, compute + sync, compute)

    seen = [(1, 1, 8), (1, 1, 16), (1, 2, 8), (1, 4, 8), (2, 8, 8), (3, 12, 8)]
    model = fit([times(*each) for each in seen])
    for each in (*seen, (1, 3, 32), (4, 16, 4)):
        assert float(model.seconds(*each)) == pytest.approx(times(*each).step, rel=0.02)
    assert fit([times(1, 1, 8)]).seconds(1, 4, 8) == pytest.approx(0.1)


def test_the_batch_grows_with_the_noise() -> None:
    model = fit([Measurement(1, 1, 8, 0.1, 0.1), Measurement(1, 1, 64, 0.2, 0.2)])
    batches = Batches(8, 1024, 4, 64)
    small = configure(model, Noise(1, 0.01, 8), batches, [1, 1], [1, 2])
    large = configure(model, Noise(1, 100, 8), batches, [1, 1], [1, 2])
    assert list(small.local * (small.extra + 1)) == [8, 4]
    assert list(large.local) == [64, 64]
    assert list(large.extra) == [1, 0]
    assert all(large.goodput > small.goodput)
    assert Noise(1, 3, 8).gain(8) == 1
    assert Noise(1, 3, 8).gain(16) == pytest.approx(1.6)
