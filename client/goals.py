"""What a job can be waited for: a condition, a phase, a value at a path, its end, its deletion. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from elasticjob.api.escapes import as_line
from elasticjob.api.v1alpha1.elasticjob import FINISHED, Phase
from elasticjob.client.errors import Unusable
from elasticjob.kube.objects.kinds import Manifest

DELETED: Final = "deleted"
WORDS: Final = ("complete", "running", "training", "suspended", "failed", "ended", DELETED)
HOW: Final = (
    f"write {', '.join(WORDS)}, condition=TYPE, phase=PHASE, or jsonpath={{.status.training.step}}=100"
)
PATH: Final = "write jsonpath={.status.training.step}=100"
_STEP: Final = re.compile(
    r"\.?([A-Za-z_][\w-]*)|\[(\d+)\]|\['([^']+)'\]|\[\?\(@\.(\w+)==[\"']([^\"']*)[\"']\)\]"
)


@dataclass(frozen=True)
class Goal:
    """A fact about a job, and whether a job that has ended can still come to it."""

    text: str
    holds: Callable[[Manifest], bool]

    @property
    def deletion(self) -> bool:
        """Whether it is that the job is gone."""
        return self.text == DELETED


def goal(text: str) -> Goal:
    """Return what a text asks for. Raises Unusable."""
    word, equals, value = text.partition("=")
    match word.lower(), equals:
        case "jsonpath", "=":
            return Goal(text, _at(*_split(value)))
        case "condition", "=":
            type_, _, status = value.partition("=")
            return Goal(text, _condition(type_, status or "True"))
        case "phase", "=" if value.capitalize() in [*Phase]:
            return Goal(text, lambda job: _phase(job) == value.capitalize())
        case "delete" | "deleted", "":
            return Goal(DELETED, lambda job: False)
        case "ended", "":
            return Goal("ended", has_ended)
        case "succeeded", "":
            return Goal("complete", _condition("complete", "True"))
        case known, "" if known in WORDS:
            return Goal(known, _condition(known, "True"))
    raise Unusable(f"{text!r} is nothing to wait for", field="for", next_step=HOW)


def has_ended(job: Manifest) -> bool:
    """Whether the job has succeeded or failed."""
    return _phase(job) in FINISHED


def state(job: Manifest) -> str:
    """Return a job's state in one sentence."""
    status = job.get("status") or {}
    phase, workers, reason = (status.get(field) or "" for field in ("phase", "workers", "reason"))
    nodes = f", {workers} nodes" if workers else ""
    why = f", {': '.join(filter(None, (reason, sentence(job))))}" if reason else ""
    return as_line(f"{phase or 'new'}{nodes}{why}")


def sentence(job: Manifest) -> str:
    """Return the message of the condition that has the job's reason, or names it; "" where none does."""
    reason = (job.get("status") or {}).get("reason")
    if not reason:
        return ""
    told = [(each.get("reason") == reason, str(each.get("message") or "")) for each in conditions(job)]
    own = [message for is_own, message in told if is_own and message]
    return as_line(next(iter([*own, *(message for _, message in told if reason in message)]), ""))


def conditions(job: Manifest) -> list[Mapping[str, Any]]:
    """Return the conditions of a job."""
    return list((job.get("status") or {}).get("conditions") or ())


def _phase(job: Manifest) -> str:
    return str((job.get("status") or {}).get("phase") or "")


def _condition(type_: str, status: str) -> Callable[[Manifest], bool]:
    def holds(job: Manifest) -> bool:
        return any(
            str(each.get("type")).lower() == type_.lower()
            and str(each.get("status")).lower() == status.lower()
            for each in conditions(job)
        )

    return holds


def _split(text: str) -> tuple[str, str | None]:
    found = re.fullmatch(r"'?\{(.+)\}'?(?:=(.*))?", text)
    if found is None:
        raise Unusable(f"{text!r} is no path", field="for", next_step=PATH)
    path, wanted = found.groups()
    return path, wanted if wanted is None else wanted.strip("'\"")


def _at(path: str, wanted: str | None) -> Callable[[Manifest], bool]:
    steps = _parse(path)

    def holds(job: Manifest) -> bool:
        found = value_at(job, steps)
        return found is not None if wanted is None else _text(found) == wanted

    return holds


Step = str | int | tuple[str, str]


def _parse(path: str) -> tuple[Step, ...]:
    steps: list[Step] = []
    place = 0
    while place < len(path):
        found = _STEP.match(path, place)
        if found is None:
            raise Unusable(f"{path!r} is no path", field="for", next_step=PATH)
        name, number, quoted, key, value = found.groups()
        steps.append((key, value) if key else int(number) if number else name or quoted)
        place = found.end()
    if not steps:
        raise Unusable("the path is empty", field="for", next_step=PATH)
    return tuple(steps)


def value_at(found: Any, steps: tuple[Step, ...] | str) -> Any:
    """Return the value at a path, such as .status.phase; None where there is none."""
    for step in _parse(steps) if isinstance(steps, str) else steps:
        match step, found:
            case str(), dict():
                found = found.get(step)
            case int(), list():
                found = found[step] if step < len(found) else None
            case (key, value), list():
                found = next((one for one in found if isinstance(one, dict) and one.get(key) == value), None)
            case _:
                return None
    return found


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else "" if value is None else str(value)
