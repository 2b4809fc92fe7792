"""What an expression says, as a tree: macros are recognised, nothing is evaluated."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final


@dataclass(frozen=True)
class Placed:
    """What stands at a place of the text: the character, from 0, that API servers name in complaints."""

    place: int = field(default=0, kw_only=True, compare=False)


@dataclass(frozen=True)
class Literal(Placed):
    """A value that is written out."""

    value: Any


@dataclass(frozen=True)
class Name(Placed):
    """A variable."""

    name: str


@dataclass(frozen=True)
class Select(Placed):
    """`operand.field`, or `operand.?field` where optional."""

    operand: Tree
    field: str
    optional: bool = False


@dataclass(frozen=True)
class Has(Placed):
    """`has(operand.field)`."""

    operand: Tree
    field: str


@dataclass(frozen=True)
class Index(Placed):
    """`operand[key]`, or `operand[?key]` where optional."""

    operand: Tree
    key: Tree
    optional: bool = False


@dataclass(frozen=True)
class Unary(Placed):
    """`!operand` or `-operand`."""

    sign: str
    operand: Tree


@dataclass(frozen=True)
class Binary(Placed):
    """A relation or a calculation."""

    sign: str
    left: Tree
    right: Tree


@dataclass(frozen=True)
class Logic(Placed):
    """Terms joined by `&&` or `||`."""

    sign: str
    terms: tuple[Tree, ...]


@dataclass(frozen=True)
class Choice(Placed):
    """`condition ? then : otherwise`."""

    condition: Tree
    then: Tree
    otherwise: Tree


@dataclass(frozen=True)
class Call(Placed):
    """`function(arguments)`, or `target.function(arguments)`; `optional.of` and its kin have no target."""

    function: str
    target: Tree | None
    arguments: tuple[Tree, ...]


@dataclass(frozen=True)
class Fold(Placed):
    """`target.all(variable, body)` and its kin; only `map` may have two bodies, a condition first."""

    macro: str
    target: Tree
    variable: str
    bodies: tuple[Tree, ...]


@dataclass(frozen=True)
class ListOf(Placed):
    """`[a, b]`."""

    items: tuple[Tree, ...]


@dataclass(frozen=True)
class MapOf(Placed):
    """`{key: value}`."""

    pairs: tuple[tuple[Tree, Tree], ...]


Tree = Literal | Name | Select | Has | Index | Unary | Binary | Logic | Choice | Call | Fold | ListOf | MapOf


def branches(tree: Tree) -> tuple[Tree, ...]:
    """Return the trees right below, in the order in which they are written."""
    match tree:
        case Literal() | Name():
            return ()
        case Select(operand) | Has(operand) | Unary(_, operand):
            return (operand,)
        case Index(operand, key):
            return (operand, key)
        case Binary(_, left, right):
            return (left, right)
        case Logic(_, terms):
            return terms
        case Choice(condition, then, otherwise):
            return (condition, then, otherwise)
        case Call(_, target, arguments):
            return arguments if target is None else (target, *arguments)
        case Fold(_, target, _, bodies):
            return (target, *bodies)
        case ListOf(items):
            return items
        case MapOf(pairs):
            return tuple(each for pair in pairs for each in pair)


def depth(tree: Tree) -> int:
    """Return how many trees stand within each other, at most."""
    levels, level = 0, [tree]
    while level:
        levels, level = levels + 1, [below for each in level for below in branches(each)]
    return levels


TYPES: Final = frozenset(
    ("bool", "int", "uint", "double", "string", "bytes", "list", "map", "type", "null_type")
)
"""The names of types, which every rule has."""


def free_names(tree: Tree) -> Iterator[str]:
    """Yield the variables that an expression reads and does not bind itself."""
    match tree:
        case Name(name):
            if name not in TYPES:
                yield name
        case Fold(_, target, variable, bodies):
            yield from free_names(target)
            for body in bodies:
                yield from (name for name in free_names(body) if name != variable)
        case _:
            for branch in branches(tree):
                yield from free_names(branch)
