"""Quantities: exact, with their unit, in Kubernetes' spellings."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticjob.api.resources import (
    NOTHING,
    Amount,
    Bytes,
    Cores,
    Devices,
    Excess,
    MalformedQuantity,
    Resources,
    container_requests,
    pod_requests,
    unit,
)

SPELLED = [
    ("0", 0),
    ("1", 1),
    (4, 4),
    (0.5, Fraction(1, 2)),
    ("500m", Fraction(1, 2)),
    ("100u", Fraction(1, 10_000)),
    ("7n", Fraction(7, 10**9)),
    ("0.1n", Fraction(1, 10**9)),
    ("1k", 1000),
    ("1M", 10**6),
    ("2G", 2 * 10**9),
    ("1T", 10**12),
    ("1P", 10**15),
    ("1E", 10**18),
    ("1E3", 1000),
    ("1e3", 1000),
    ("1.5e-1", Fraction(3, 20)),
    ("1Ki", 1024),
    ("1.5Mi", 3 * 2**19),
    ("8Gi", 2**33),
    ("1Ti", 2**40),
    ("1Pi", 2**50),
    ("1Ei", 2**60),
    (".5", Fraction(1, 2)),
    ("5.", 5),
    ("+1", 1),
    ("-1", -1),
]


@pytest.mark.parametrize(("raw", "value"), SPELLED)
def test_parse(raw: str | int | float, value: Fraction | int) -> None:
    assert Amount.parse(raw).value == value


@pytest.mark.parametrize(
    "raw",
    [
        "",
        "x",
        "4x",
        "1e",
        "--1",
        "1 Gi",
        "1gi",
        "1KI",
        "1ki",
        "٣",
        ".",
        "1e3Gi",
        "1e99",
        "1" * 65,
        float("nan"),
        float("inf"),
        True,
        None,
        [],
    ],
)
def test_malformed_quantities_are_refused(raw: object) -> None:
    with pytest.raises(MalformedQuantity, match="write 8Gi or 512Mi"):
        Bytes.parse(raw)  # type: ignore[arg-type]  # what a manifest may hold


@pytest.mark.parametrize("raw", ["0.5", "1500m", 1.5])
def test_devices_are_whole(raw: str | float) -> None:
    with pytest.raises(MalformedQuantity, match="whole number"):
        Devices.parse(raw)


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (Cores(0), "0"),
        (Cores(4), "4"),
        (Cores(1000), "1000"),
        (Cores(Fraction(5, 2)), "2500m"),
        (Cores(Fraction(1, 3)), "333333334n"),
        (Bytes(2**33), "8Gi"),
        (Bytes(3 * 2**19), "1536Ki"),
        (Bytes(1000), "1000"),
        (Bytes(Fraction(1, 2)), "1"),
        (Bytes(-(2**20)), "-1Mi"),
        (Devices(8), "8"),
    ],
)
def test_spelling(amount: Amount, text: str) -> None:
    assert str(amount) == text


NANO = st.integers(-(10**20), 10**20).map(lambda count: Fraction(count, 10**9))
UNITS = st.sampled_from([Cores, Amount])


@given(NANO, UNITS)
def test_what_is_written_reads_the_same(value: Fraction, kind: type[Amount]) -> None:
    assert kind.parse(str(kind(value))) == kind(value)


@given(st.integers(-(2**63), 2**63), st.sampled_from([Bytes, Devices, Cores]))
def test_whole_amounts_read_the_same(value: int, kind: type[Amount]) -> None:
    assert kind.parse(str(kind(value))) == kind(value)


@given(st.fractions())
def test_finer_amounts_are_rounded_up_and_by_less_than_a_billionth(value: Fraction) -> None:
    rounded = Cores.parse(str(Cores(value))).value
    assert 0 <= rounded - value < Fraction(1, 10**9)


@given(NANO, NANO, st.integers(-100, 100))
def test_arithmetic_is_exact(a: Fraction, b: Fraction, factor: int) -> None:
    assert (Cores(a) + Cores(b)).value == a + b
    assert (Cores(a) - Cores(b)).value == a - b
    assert (Cores(a) * factor).value == (factor * Cores(a)).value == a * factor
    assert (Cores(a) < Cores(b)) is (a < b)


def test_unlike_amounts_neither_add_nor_compare() -> None:
    with pytest.raises(TypeError, match="cores and bytes do not add up"):
        Cores(1) + Bytes(1)  # type: ignore[operator]  # the point
    with pytest.raises(TypeError):
        assert Cores(1) < Bytes(1)  # type: ignore[operator]  # the point
    assert len({Cores(1), Bytes(1)}) == 2


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("cpu", Cores),
        ("memory", Bytes),
        ("ephemeral-storage", Bytes),
        ("hugepages-2Mi", Bytes),
        ("nvidia.com/gpu", Devices),
        ("pods", Devices),
    ],
)
def test_units(name: str, kind: type[Amount]) -> None:
    assert unit(name) is kind


def test_resources_add_multiply_and_compare_by_name() -> None:
    one = Resources.parse({"cpu": "500m", "memory": "1Gi"})
    total = one * 3 + Resources.parse({"nvidia.com/gpu": 1})
    assert total.manifest() == {"cpu": "1500m", "memory": "3Gi", "nvidia.com/gpu": "1"}
    assert total.over(Resources.parse({"cpu": 1, "memory": "4Gi"})) == (
        Excess("cpu", Cores(Fraction(3, 2)), Cores(1)),
    )
    assert (one | Resources.parse({"cpu": 2})).manifest() == {"cpu": "2", "memory": "1Gi"}
    assert one.most(Resources.parse({"cpu": 2, "pods": 1})).manifest() == {
        "cpu": "2",
        "memory": "1Gi",
        "pods": "1",
    }


def test_a_malformed_resource_is_named() -> None:
    with pytest.raises(MalformedQuantity, match="memory: '1GB' is not a quantity"):
        Resources.parse({"cpu": 1, "memory": "1GB"})


@pytest.mark.parametrize(
    ("resources", "asked"),
    [
        ({}, {}),
        ({"requests": {"cpu": 1}}, {"cpu": "1"}),
        ({"limits": {"cpu": 2, "memory": "1Gi"}, "requests": {"cpu": 1}}, {"cpu": "1", "memory": "1Gi"}),
    ],
)
def test_containers_ask_for_their_limits_where_they_name_no_request(
    resources: dict[str, object], asked: dict[str, str]
) -> None:
    assert container_requests({"resources": resources}).manifest() == asked


def wants(cpu: int, **more: str) -> dict[str, object]:
    return {"resources": {"requests": {"cpu": cpu}}, **more}


@pytest.mark.parametrize(
    ("pod", "cpu"),
    [
        ({}, None),
        ({"containers": [wants(1), wants(2)]}, "3"),
        ({"containers": [wants(1)], "initContainers": [wants(4), wants(2)]}, "4"),
        ({"containers": [wants(1)], "initContainers": [wants(2, restartPolicy="Always"), wants(4)]}, "6"),
        ({"containers": [wants(5)], "initContainers": [wants(2, restartPolicy="Always"), wants(4)]}, "7"),
        ({"containers": [wants(1)], "overhead": {"cpu": 1}}, "2"),
    ],
)
def test_pods_ask_by_the_schedulers_rule(pod: dict[str, object], cpu: str | None) -> None:
    assert pod_requests(pod).manifest().get("cpu") == cpu


def test_nothing_is_the_zero_of_sums() -> None:
    some = Resources.parse({"cpu": 1})
    assert NOTHING + some == some
    assert len(NOTHING) == 0
