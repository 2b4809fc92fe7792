"""Variables and sums in the words of a shell, as far as their values are known before it runs. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

VARIABLE: Final = re.compile(r"\$(?:\{(\w+)(?::?[-=]([^{}$]*))?\}|(\w+))")
SUM: Final = re.compile(r"\$\(\(([^()]*)\)\)")
TERM: Final = re.compile(r"\s*(\d{1,9}|[-+*/]|\$?[A-Za-z_]\w*)\s*")


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Return a text with the variables and sums that are known put in; the others stay as they are."""
    if "$" not in text:
        return text

    def put_in(found: re.Match[str]) -> str:
        name, default = found[1] or found[3], found[2]
        return variables.get(name, found[0] if default is None else default)

    summed = SUM.sub(lambda found: _sum(found[1], variables) or found[0], text)
    return VARIABLE.sub(put_in, summed)


def _sum(text: str, variables: Mapping[str, str]) -> str | None:
    """Return the value of a sum of whole numbers and products; None if it is unknown."""
    text = VARIABLE.sub(lambda found: found[1] or found[3] or "", text)
    terms = TERM.findall(text)
    if "".join(terms) != re.sub(r"\s", "", text) or len(terms) % 2 == 0 or len(terms) > 9:
        return None
    numbers = [variables.get(term, term) for term in terms[::2]]
    if not all(number.isdecimal() for number in numbers):
        return None
    sums = [int(numbers[0])]
    for sign, number in zip(terms[1::2], numbers[1:], strict=True):
        match sign:
            case "*":
                sums[-1] *= int(number)
            case "/" if int(number):
                sums[-1] //= int(number)
            case "+" | "-":
                sums.append(int(f"{sign}{number}"))
            case _:
                return None
    return str(sum(sums))
