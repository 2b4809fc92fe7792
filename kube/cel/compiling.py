"""Whether an expression fits the schema it stands in: what API servers look at before they store a rule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from elasticjob.kube.cel.advice import for_result
from elasticjob.kube.cel.checker import checked
from elasticjob.kube.cel.declared import variables
from elasticjob.kube.cel.literals import misread, mixed
from elasticjob.kube.cel.mistakes import Mistake, shown
from elasticjob.kube.cel.parser import parsed
from elasticjob.kube.cel.program import impossible
from elasticjob.kube.cel.shapes import Shape
from elasticjob.kube.cel.types import BOOL, STRING, Type
from elasticjob.kube.cel.values import CelSyntaxError


@dataclass(frozen=True)
class Refusal:
    """Why an expression is refused: in a server's words, and for the person who wrote it."""

    message: str
    advice: str


@dataclass(frozen=True)
class Wanted:
    """What the expression in a field of a rule must be, and how servers say that it is not."""

    kind: Type
    broken: str
    unmade: str
    otherwise: str


WANTED: Final[Mapping[str, Wanted]] = {
    "rule": Wanted(
        BOOL,
        "compilation failed: ",
        "program instantiation failed: ",
        "cel expression must evaluate to a bool",
    ),
    "messageExpression": Wanted(
        STRING,
        "messageExpression compilation failed: ",
        "messageExpression instantiation failed: ",
        "messageExpression must evaluate to a string",
    ),
}


def refusal(entry: Mapping[str, Any], field: str, shape: Shape) -> Refusal | None:
    """Return why a server refuses the expression in a field of a rule over values of a shape, or None."""
    text, wanted = entry[field], WANTED[field]
    try:
        tree = parsed(text)
    except CelSyntaxError as error:
        return Refusal(wanted.broken + shown(text, [Mistake(error.place, error.told)]), str(error))
    found = checked(tree, variables(shape, optional_old=bool(entry.get("optionalOldSelf"))))
    mistakes = found.mistakes or (*misread(tree), *mixed(tree, found.kinds))
    if mistakes:
        first = min(mistakes, key=lambda each: each.place)
        why = f"{first.message}{_at(text, first.place)}{first.advice and ': ' + first.advice}"
        return Refusal(wanted.broken + shown(text, mistakes), why)
    if found.kind != wanted.kind:
        why = f"it is of type {found.kind}, not {wanted.kind}: {for_result(found.kind, wanted.kind)}"
        return Refusal(wanted.otherwise, why)
    unmade = next(impossible(tree), "")
    return Refusal(wanted.unmade + unmade, f"it has no value, ever: {unmade}") if unmade else None


def _at(text: str, place: int) -> str:
    return f" at character {place + 1}" if "\n" not in text else ""
