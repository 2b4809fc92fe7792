"""What to write instead of an expression that is mistyped: for people; servers do not say it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from typing import Final

from elasticjob.kube.cel.types import BOOL, DOUBLE, DYN, INT, STRING, Type

_NUMBERS: Final = ("int", "uint", "double")
_SUMS: Final = ("_+_", "_-_", "_*_", "_/_", "_%_")


def for_field(name: str, known: Iterable[str]) -> str:
    """Advice on a field that the schema does not have."""
    fields = sorted(known)
    if close := get_close_matches(name, fields, 1):
        return f"write {close[0]}"
    listed = ", ".join(fields[:8]) or "none"
    return f"its fields are: {listed}{', …' if len(fields) > 8 else ''}"


def for_name(name: str, known: Iterable[str]) -> str:
    """Advice on a variable or function that no rule has."""
    if close := get_close_matches(name, sorted(known), 1):
        return f"write {close[0]}"
    return "a rule knows self and oldSelf only: begin with one of them"


def for_call(function: str, kinds: Sequence[Type]) -> str:
    """Advice on an operator or function that has no form for such types."""
    return next((told for rule in _RULES if (told := rule(function, kinds))), "")


def for_result(kind: Type, wanted: Type) -> str:
    """Advice on a whole expression of the wrong type."""
    if wanted == STRING:
        return "write string(…) around it"
    if kind.name in _NUMBERS:
        return "compare it with something, as in … > 0"
    if kind.name == "optional_type":
        return "write .orValue(false) behind it, or ask it .hasValue()"
    if kind.name in ("list", "map", "string"):
        return "ask for its size, as in size(…) > 0"
    return "compare it with something, as in … == true" if kind == DYN else "write a comparison"


def _of_optional(function: str, kinds: Sequence[Type]) -> str:
    if any(each.name == "optional_type" for each in kinds) and function != "orValue":
        return "take the value out of the optional first: .orValue(…), or .value() after .hasValue()"
    return ""


def _of_null(function: str, kinds: Sequence[Type]) -> str:
    if function in ("_==_", "_!=_") and any(each.name == "null_type" for each in kinds):
        return "such a field is never null, but may be missing: ask has(…)"
    return ""


def _of_texts(function: str, kinds: Sequence[Type]) -> str:
    return "write string(…) around what is no text" if function == "_+_" and STRING in kinds else ""


def _of_numbers(function: str, kinds: Sequence[Type]) -> str:
    if function in _SUMS and INT in kinds and DOUBLE in kinds:
        return "calculate with one type of numbers: write double(…) around the whole number, or int(…)"
    return ""


def _of_condition(function: str, kinds: Sequence[Type]) -> str:
    return "its condition must be true or false" if function == "_?_:_" and kinds[0] != BOOL else ""


def _of_unlike(function: str, kinds: Sequence[Type]) -> str:
    """Comparisons, and choices between two values."""
    if function.startswith("_") and len(kinds) > 1 and kinds[-1] != kinds[-2]:
        if STRING in kinds[-2:] and {each.name for each in kinds[-2:]} & set(_NUMBERS):
            return (
                "both sides must be of one type: write string(…) around the number, or int(…) around the text"
            )
        return "both sides must be of one type"
    return ""


_RULES: Final[tuple[Callable[[str, Sequence[Type]], str], ...]] = (
    *(_of_optional, _of_null, _of_texts, _of_numbers, _of_condition, _of_unlike),
)
