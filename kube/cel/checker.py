"""Types of rules, found as API servers find them: by unifying, overload by overload.

    checked(parsed("self.n > 'a'"), {"self": Type(...)})    # → a type, and the mistakes on the way there

Guarantee: an expression without mistakes, none of whose parts is of the type `dyn`, fails at run time only
for what its values are (a missing key, an index, a division, a text that is no number), never for their
types.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from elasticjob.kube.cel import advice
from elasticjob.kube.cel import mistakes as say
from elasticjob.kube.cel.mistakes import Mistake
from elasticjob.kube.cel.overloads import FUNCTIONS, Overload
from elasticjob.kube.cel.syntax import (
    TYPES,
    Binary,
    Call,
    Choice,
    Fold,
    Has,
    Index,
    ListOf,
    Literal,
    Logic,
    MapOf,
    Name,
    Select,
    Tree,
    Unary,
)
from elasticjob.kube.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DYN,
    ERROR,
    INT,
    NULL,
    STRING,
    UINT,
    Assignment,
    Type,
    list_of,
    map_of,
    maybe,
    most_general,
    unwrapped,
)
from elasticjob.kube.cel.values import Uint

Scope = Mapping[str, Type]


@dataclass(frozen=True)
class Checked:
    """`kinds` are the types of all parts, by the identity of their trees."""

    kind: Type
    mistakes: tuple[Mistake, ...]
    kinds: Mapping[int, Type]


def checked(tree: Tree, scope: Scope) -> Checked:
    """Return the type of an expression over variables of known types, with what is wrong in it."""
    checker = _Checker()
    kind = checker.kind(tree, scope)
    kinds = {part: checker.known.filled(each, dyn=True) for part, each in checker.kinds.items()}
    return Checked(checker.known.filled(kind, dyn=True), tuple(checker.mistakes), kinds)


_LITERALS: Final[Mapping[type, Type]] = {
    bool: BOOL,
    int: INT,
    Uint: UINT,
    float: DOUBLE,
    str: STRING,
    bytes: BYTES,
    type(None): NULL,
}


class _Checker:
    def __init__(self) -> None:
        self.known = Assignment()
        self.mistakes: list[Mistake] = []
        self.kinds: dict[int, Type] = {}

    def kind(self, tree: Tree, scope: Scope) -> Type:
        found = _VISITS[type(tree)](self, tree, scope)
        self.kinds[id(tree)] = found
        return found

    def _wrong(self, tree: Tree, message: str, advice: str = "") -> Type:
        self.mistakes.append(Mistake(tree.place, message, advice))
        return ERROR

    def literal(self, tree: Literal, scope: Scope) -> Type:
        return _LITERALS[type(tree.value)]

    def name(self, tree: Name, scope: Scope) -> Type:
        if tree.name in scope:
            return scope[tree.name]
        if tree.name in TYPES:
            named = Type(tree.name)
            return Type("type", (Type(tree.name, _GENERIC.get(tree.name, named.parameters)),))
        return self._wrong(tree, say.undeclared(tree.name), advice.for_name(tree.name, scope))

    def select(self, tree: Select, scope: Scope) -> Type:
        return self.known.filled(self._field(tree, tree.operand, tree.field, scope, optional=tree.optional))

    def has(self, tree: Has, scope: Scope) -> Type:
        self._field(tree, tree.operand, tree.field, scope, optional=False)
        return BOOL

    def _field(self, tree: Tree, operand: Tree, name: str, scope: Scope, *, optional: bool) -> Type:
        target, was_optional = unwrapped(self.known.filled(self.kind(operand, scope)))
        found = self._field_of(tree, target, name)
        return maybe(found) if was_optional or optional else found

    def _field_of(self, tree: Tree, target: Type, name: str) -> Type:
        if target.name == "map":
            return target.parameters[1]
        if target.fields is not None:
            if name in target.fields:
                return target.fields[name]
            return self._wrong(tree, say.undefined_field(name), advice.for_field(name, target.fields))
        if target.is_variable:
            self.known.fits([DYN], [target])
        elif not target.is_open:
            self._wrong(tree, say.no_fields(target))
        return DYN

    def index(self, tree: Index, scope: Scope) -> Type:
        kinds = [self.kind(tree.operand, scope), self.kind(tree.key, scope)]
        return self._called(tree, "_[?_]" if tree.optional else "_[_]", kinds)

    def unary(self, tree: Unary, scope: Scope) -> Type:
        return self._called(tree, f"{tree.sign}_", [self.kind(tree.operand, scope)])

    def binary(self, tree: Binary, scope: Scope) -> Type:
        kinds = [self.kind(tree.left, scope), self.kind(tree.right, scope)]
        return self._called(tree, "@in" if tree.sign == "in" else f"_{tree.sign}_", kinds)

    def logic(self, tree: Logic, scope: Scope) -> Type:
        self._all_hold(tree.terms, [self.kind(term, scope) for term in tree.terms])
        return BOOL

    def _all_hold(self, trees: tuple[Tree, ...], kinds: list[Type]) -> None:
        """Complain of terms that are neither true nor false."""
        for tree, kind in zip(trees, kinds, strict=True):
            if not self.known.fits([kind], [BOOL]):
                self._wrong(tree, say.mismatch(BOOL, kind))

    def choice(self, tree: Choice, scope: Scope) -> Type:
        parts = [self.kind(each, scope) for each in (tree.condition, tree.then, tree.otherwise)]
        return self._called(tree, "_?_:_", parts)

    def call(self, tree: Call, scope: Scope) -> Type:
        arguments = [self.kind(each, scope) for each in tree.arguments]
        targets = [] if tree.target is None else [self.kind(tree.target, scope)]
        return self._called(tree, tree.function, targets + arguments, of_target=tree.target is not None)

    def _called(self, tree: Tree, name: str, kinds: list[Type], *, of_target: bool = False) -> Type:
        """The type of what a function returns: `dyn` where several forms of it fit, and differ."""
        if name not in FUNCTIONS:
            return self._wrong(tree, say.undeclared(name), advice.for_name(name, FUNCTIONS))
        found: Type | None = None
        for form in FUNCTIONS[name]:
            if form.is_method == of_target and (result := self._result(form, kinds)) is not None:
                found = result if found in (None, result) else DYN
        if found is not None:
            return found
        shown = [self.known.filled(each, dyn=True) for each in kinds]
        message = say.no_overload(name, shown, of_target=of_target)
        return self._wrong(tree, message, advice.for_call(name, shown))

    def _result(self, form: Overload, kinds: list[Type]) -> Type | None:
        result, *wanted = self.known.fresh([form.result, *form.arguments])
        return self.known.filled(result) if self.known.fits(kinds, wanted) else None

    def list_of(self, tree: ListOf, scope: Scope) -> Type:
        return list_of(self._joined(tree.items, scope))

    def map_of(self, tree: MapOf, scope: Scope) -> Type:
        keys, values = zip(*tree.pairs, strict=True) if tree.pairs else ((), ())
        return map_of(self._joined(keys, scope), self._joined(values, scope))

    def _joined(self, items: tuple[Tree, ...], scope: Scope) -> Type:
        """The type of all elements; nothing is known of those of an empty list."""
        found: Type | None = None
        for item in items:
            kind = self.kind(item, scope)
            if found is None:
                found = kind
            elif self.known.fits([found], [kind]):
                found = most_general(found, kind)
            else:
                found = DYN
        return found or self.known.variable()

    def fold(self, tree: Fold, scope: Scope) -> Type:
        over = self.known.filled(self.kind(tree.target, scope))
        inner = {**scope, tree.variable: self._element(tree, over)}
        kinds = [self.kind(body, inner) for body in tree.bodies]
        return _FOLDS[tree.macro](self, tree, inner[tree.variable], kinds)

    def _element(self, tree: Fold, over: Type) -> Type:
        """The type of a loop's variable: an element of a list, a key of a map."""
        if over.name in ("list", "map"):
            return over.parameters[0]
        if over.is_variable:
            self.known.fits([DYN], [over])
        elif not over.is_open:
            return self._wrong(tree.target, say.no_range(over))
        return DYN

    def quantified(self, tree: Fold, element: Type, kinds: list[Type]) -> Type:
        self._all_hold(tree.bodies, kinds)
        return BOOL

    def counted(self, tree: Fold, element: Type, kinds: list[Type]) -> Type:
        self._called(tree, "_?_:_", [*kinds, INT, INT])
        return BOOL

    def kept(self, tree: Fold, element: Type, kinds: list[Type]) -> Type:
        found = list_of(element)
        self._called(tree, "_?_:_", [*kinds, found, found])
        return self.known.filled(found)

    def mapped(self, tree: Fold, element: Type, kinds: list[Type]) -> Type:
        found = list_of(kinds[-1])
        if len(kinds) > 1:
            self._called(tree, "_?_:_", [kinds[0], found, found])
        return self.known.filled(found)


_GENERIC: Final[Mapping[str, tuple[Type, ...]]] = {"list": (DYN,), "map": (DYN, DYN)}

_FOLDS: Final[Mapping[str, Callable[[_Checker, Fold, Type, list[Type]], Type]]] = {
    "all": _Checker.quantified,
    "exists": _Checker.quantified,
    "exists_one": _Checker.counted,
    "filter": _Checker.kept,
    "map": _Checker.mapped,
}

_VISITS: Final[Mapping[type, Callable[[_Checker, Any, Scope], Type]]] = {
    Literal: _Checker.literal,
    Name: _Checker.name,
    Select: _Checker.select,
    Has: _Checker.has,
    Index: _Checker.index,
    Unary: _Checker.unary,
    Binary: _Checker.binary,
    Logic: _Checker.logic,
    Choice: _Checker.choice,
    Call: _Checker.call,
    Fold: _Checker.fold,
    ListOf: _Checker.list_of,
    MapOf: _Checker.map_of,
}
