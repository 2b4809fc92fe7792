"""A story of cluster mode, told on two stages: Brain sizes a job by what it learnt from an earlier one."""

from __future__ import annotations

from typing import Any, Final, Protocol

from lab.waiting import until

PACED: Final = ("--seconds", "0.3", "0.15", "--steps", "2000", "--gate")
"""Flags of `lab/scripts/e2e/steps.py`: twice as fast with two workers as with one, until its gate opens."""
LIMITS: Final = {"cpu": "2", "memory": "8Gi"}


class Place(Protocol):
    """A cluster with an operator and a Brain."""

    async def apply(self, name: str) -> None:
        """Create a job that a gate holds; all it says of its sizes is that there are at most two workers."""

    async def let_go(self, name: str) -> None:
        """Open its gate, and wait until it is Complete."""

    async def known(self, name: str) -> dict[str, Any]:
        """Return what Brain tells of a job; nothing while it is away."""

    async def lose_brain(self) -> None:
        """Kill it while the first job takes its second worker; it is back afterwards."""

    async def reasons(self) -> list[str]:
        """Return those of all plans."""


async def tell(place: Place) -> None:
    """Have one job grow, and another begin as the first one ended."""

    async def decisions(name: str) -> list[dict[str, Any]]:
        return list((await place.known(name)).get("decisions", []))

    async def is_grown() -> bool:
        decided = [each["algorithm"].split() for each in await decisions("first") if each["outcome"]]
        return any("worker-growth" in names for names in decided)

    async def is_learnt() -> bool:
        job = await place.known("first")
        return bool(job.get("completed") and job["samples"][-1]["nodes"])

    async def is_told() -> bool:
        return any("1 completed jobs like it" in reason for reason in await place.reasons())

    await place.apply("first")
    await until(is_grown, "Brain grows the job")
    await place.lose_brain()
    await place.let_go("first")
    await until(is_learnt, "Brain has seen the end")
    await place.apply("second")
    await until(is_told, "a plan of the second job tells why it has its sizes")
    first, second = await decisions("first"), await decisions("second")
    assert (first[0]["event"], first[0]["algorithm"]) == ("Start", "start"), first
    assert (second[0]["event"], second[0]["algorithm"]) == ("Start", "worker-from-history"), second
    reasons = await place.reasons()
    assert any("worker-growth" in reason.partition(": ")[0].split() for reason in reasons), reasons
