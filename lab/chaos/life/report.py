"""The tables at the end of a soak: what came of each training, and of each trouble."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.table import Table

from lab.chaos.life.cases import Case
from lab.chaos.life.oracle import Outcome


@dataclass(frozen=True)
class Tried:
    """A case and what came of it."""

    case: Case
    outcome: Outcome
    why: tuple[str, ...]
    seconds: float

    def line(self, seed: int) -> str:
        """Return the line of progress; a case that is wrong says how it is repeated."""
        head = f"{self.case.number:4} {self.outcome:7} {self.seconds:4.0f} s  {self.case}"
        if self.outcome == Outcome.EQUAL:
            return head
        again = [f"       {repeat(seed, self.case)}"] if self.outcome == Outcome.WRONG else []
        return "\n".join([head, *(f"       {sentence}" for sentence in self.why), *again])


def repeat(seed: int, case: Case) -> str:
    """Return the command that plays a case again."""
    return f"python -m lab.chaos.life --seed {seed} --case {case.number}"


def counted(tried: Iterable[Tried], of: str) -> dict[str, Counter[Outcome]]:
    """Count outcomes by training, or by trouble: a case counts for each of its troubles."""
    found: dict[str, Counter[Outcome]] = {}
    for each in tried:
        names = [each.case.training.name] if of == "training" else sorted(set(each.case.troubles))
        for name in names:
            found.setdefault(name, Counter())[each.outcome] += 1
    return found


def tables(tried: Sequence[Tried]) -> list[Table]:
    """Return the tables."""
    made = []
    for of in ("training", "trouble"):
        table = Table(of, *(str(outcome) for outcome in Outcome), box=None)
        for name, outcomes in sorted(counted(tried, of).items()):
            table.add_row(name, *(str(outcomes[outcome] or "-") for outcome in Outcome))
        made.append(table)
    return made
