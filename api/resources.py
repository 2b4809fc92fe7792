"""Quantities of resources: exact numbers with their unit in the type.

    Cores.parse("500m") + Cores.parse(2) == Cores.parse("2500m")
    str(Bytes.parse("1.5Gi") * 2)  == "3Gi"
    Cores(1) + Bytes(1)            # a type error, for mypy and at run time
    Resources.parse({"cpu": 4, "memory": "8Gi"}) * 3 + Resources.parse({"nvidia.com/gpu": 1})

Spellings are those of Kubernetes: a decimal number with a suffix n u m k M G T P E, Ki Mi Gi Ti Pi Ei, or an
exponent. Like there, what is finer than a billionth is rounded up.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import ceil
from typing import Any, ClassVar, Final, Self, TypeGuard

Raw = str | int | float
"""A quantity as written in a manifest."""

_SUFFIXES: Final[Mapping[str, Fraction]] = {
    "": Fraction(1),
    **{suffix: Fraction(1, 1000**power) for power, suffix in enumerate("mun", 1)},
    **{suffix: Fraction(1000**power) for power, suffix in enumerate("kMGTPE", 1)},
    **{f"{suffix}i": Fraction(1024**power) for power, suffix in enumerate("KMGTPE", 1)},
}
_BINARY: Final = tuple((suffix, _SUFFIXES[suffix]) for suffix in ("Ei", "Pi", "Ti", "Gi", "Mi", "Ki", ""))
_FINE: Final = tuple((suffix, _SUFFIXES[suffix]) for suffix in ("", "m", "u", "n"))
_SPELLING: Final = re.compile(
    r"(?P<number>[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))"
    r"(?:[eE](?P<exponent>[+-]?[0-9]{1,3})|(?P<suffix>[numkMGTPE]|[KMGTPE]i)?)"
)
_LONGEST: Final = 64
_WIDEST: Final = 30


class MalformedQuantity(ValueError):
    """The string is not a quantity, or not one of this unit; the message says what to write."""


@dataclass(frozen=True, order=True)
class Amount:
    """A quantity; only quantities of the same subclass add and compare."""

    value: Fraction | int

    WORD: ClassVar[str] = "quantity"
    EXAMPLE: ClassVar[str] = "500m, 4 or 8Gi"

    @classmethod
    def parse(cls, raw: Raw) -> Self:
        """Return `raw` as an amount; raises MalformedQuantity."""
        return cls(_exact(raw, cls))

    def __add__(self, other: Self) -> Self:
        return type(self)(self.value + self._same(other).value)

    def __sub__(self, other: Self) -> Self:
        return type(self)(self.value - self._same(other).value)

    def __mul__(self, factor: int | Fraction) -> Self:
        return type(self)(self.value * factor)

    __rmul__ = __mul__

    def __bool__(self) -> bool:
        return bool(self.value)

    def __str__(self) -> str:
        """The shortest string that parses to the same amount, rounded up to 1e-9."""
        return _spell(self.value, _FINE)

    def _same(self, other: Self) -> Self:
        if type(other) is not type(self):
            raise TypeError(f"{self.WORD} and {getattr(other, 'WORD', type(other).__name__)} do not add up")
        return other


class Cores(Amount):
    """Processor time: `cpu`."""

    WORD = "cores"
    EXAMPLE = "4, 0.5 or 500m"


class Bytes(Amount):
    """Memory and storage: `memory`, `ephemeral-storage`, `storage`, `hugepages-…`."""

    WORD = "bytes"
    EXAMPLE = "8Gi or 512Mi"

    def __str__(self) -> str:
        """The largest binary suffix that leaves a whole number; fractions of a byte are rounded up."""
        return _spell(ceil(self.value), _BINARY)


class Devices(Amount):
    """Whole devices: `nvidia.com/gpu`, `pods` and all other names."""

    WORD = "devices"
    EXAMPLE = "1"

    @classmethod
    def parse(cls, raw: Raw) -> Self:
        found = super().parse(raw)
        if Fraction(found.value).denominator != 1:
            raise MalformedQuantity(f"{raw!r} is not a whole number of devices: write {cls.EXAMPLE}")
        return found


def unit(name: str) -> type[Amount]:
    """Return the unit of the resource called `name`."""
    if name == "cpu":
        return Cores
    if name in ("memory", "storage", "ephemeral-storage") or name.startswith("hugepages-"):
        return Bytes
    return Devices


@dataclass(frozen=True)
class Excess:
    """A resource whose requested amount exceeds its limit."""

    name: str
    wanted: Amount
    limit: Amount


@dataclass(frozen=True)
class Resources(Mapping[str, Amount]):
    """Amounts by resource name. An absent name means 0 in sums, and unlimited in limits."""

    amounts: Mapping[str, Amount]

    @classmethod
    def parse(cls, manifest: Mapping[str, Raw] | None) -> Self:
        """Return the amounts in a manifest; MalformedQuantity names the resource."""
        return cls({name: _by_name(name, raw) for name, raw in (manifest or {}).items()})

    def manifest(self) -> dict[str, str]:
        """Return the amounts as they are written in a manifest."""
        return {name: str(amount) for name, amount in self.amounts.items()}

    def over(self, limits: Resources) -> tuple[Excess, ...]:
        """Return the excess over `limits`, by name; resources without a limit are skipped."""
        named = sorted(self.amounts.keys() & limits.amounts.keys())
        return tuple(Excess(n, self[n], limits[n]) for n in named if self[n].value > limits[n].value)

    def __or__(self, other: Resources) -> Resources:
        """Return these amounts, overridden by those of `other`."""
        return Resources({**self.amounts, **other.amounts})

    def __add__(self, other: Resources) -> Resources:
        return self._each(other, lambda a, b: a + b)

    def __mul__(self, factor: int) -> Resources:
        return Resources({name: amount * factor for name, amount in self.amounts.items()})

    def most(self, other: Resources) -> Resources:
        """Return the larger amount of each resource."""
        return self._each(other, max)

    def _each(self, other: Resources, combine: Any) -> Resources:
        names = dict.fromkeys((*self.amounts, *other.amounts))
        return Resources({n: combine(self.get(n, unit(n)(0)), other.get(n, unit(n)(0))) for n in names})

    def __getitem__(self, name: str) -> Amount:
        return self.amounts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.amounts)

    def __len__(self) -> int:
        return len(self.amounts)


NOTHING: Final = Resources({})


def container_requests(container: Mapping[str, Any]) -> Resources:
    """Return a container's requests; a limit without a request counts as the request."""
    resources = container.get("resources") or {}
    return Resources.parse(resources.get("limits")) | Resources.parse(resources.get("requests"))


def pod_requests(pod: Mapping[str, Any]) -> Resources:
    """Return the requests of a pod spec, by the scheduler's rule.

    Containers and restartable init containers are summed; the other init containers run one at a time before
    them, so the largest counts; overhead is added.
    """
    together, before = NOTHING, NOTHING
    for container in pod.get("initContainers") or ():
        if container.get("restartPolicy") == "Always":
            together = together + container_requests(container)
            before = before.most(together)
        else:
            before = before.most(together + container_requests(container))
    for container in pod.get("containers") or ():
        together = together + container_requests(container)
    return together.most(before) + Resources.parse(pod.get("overhead"))


def _by_name(name: str, raw: Raw) -> Amount:
    return _of_text(name, raw) if isinstance(raw, str) else _parsed(name, raw)


@lru_cache(maxsize=4096)  # the same few quantities are parsed on every reconcile
def _of_text(name: str, text: str) -> Amount:
    return _parsed(name, text)


def _parsed(name: str, raw: Raw) -> Amount:
    try:
        return unit(name).parse(raw)
    except MalformedQuantity as error:
        raise MalformedQuantity(f"{name}: {error}") from None


def _exact(raw: Raw, of: type[Amount]) -> Fraction:
    text = str(raw)
    if not _is_raw(raw) or len(text) > _LONGEST:
        raise MalformedQuantity(f"{raw!r} is not a quantity: write {of.EXAMPLE}")
    return _value(text, of.EXAMPLE)


@lru_cache(maxsize=4096)
def _value(text: str, example: str) -> Fraction:
    if (found := _SPELLING.fullmatch(text)) is None:
        raise MalformedQuantity(f"{text!r} is not a quantity: write {example}")
    exponent = int(found["exponent"] or 0)
    if abs(exponent) > _WIDEST:
        raise MalformedQuantity(f"{text!r} is out of range: write {example}")
    return _billionths(
        Fraction(found["number"]) * _SUFFIXES[found["suffix"] or ""] * Fraction(10) ** exponent
    )


def _is_raw(raw: object) -> TypeGuard[Raw]:
    return isinstance(raw, str | int | float) and not isinstance(raw, bool)


def _billionths(value: Fraction) -> Fraction:
    return Fraction(ceil(value * 10**9), 10**9)


def _spell(value: Fraction | int, suffixes: tuple[tuple[str, Fraction], ...]) -> str:
    if not value:
        return "0"
    rounded = _billionths(Fraction(value))
    suffix, size = next((s, size) for s, size in suffixes if (rounded / size).denominator == 1)
    return f"{(rounded / size).numerator}{suffix}"
