"""What the code of a function refers to: whether it makes an `Elastic`, before it runs."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from types import CodeType, FunctionType, ModuleType
from typing import Any

from elasticjob.trainer.agent.script import LIBRARY


def uses_elastic(fn: Any, args: Sequence[Any] = ()) -> bool:
    """Whether the code of a function, or of what it refers to in its own module, names `Elastic`."""
    seen: set[int] = set()
    left: list[Any] = [fn, *args]
    while left:
        each = left.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        if is_elastic(each):
            return True
        left += references(each)
    return False


def is_elastic(value: Any) -> bool:
    """Whether a value is the library, or `Elastic` itself."""
    if isinstance(value, ModuleType):
        return value.__name__ == LIBRARY
    return isinstance(value, type) and value.__name__ == "Elastic" and value.__module__.startswith(LIBRARY)


def references(value: Any) -> Iterator[Any]:
    """Yield what a function, a method or a class refers to, as far as it is of the same module."""
    value = getattr(value, "func", getattr(value, "__func__", value))  # functools.partial, methods
    if isinstance(value, type):
        yield from (each for each in vars(value).values() if isinstance(each, FunctionType))
    if not isinstance(value, FunctionType):
        return
    for cell in value.__closure__ or ():
        with suppress(ValueError):  # of a variable that is not set yet
            yield cell.cell_contents
    for inner in codes(value.__code__):
        for name in inner.co_names:
            if name == LIBRARY:
                yield sys.modules.get(name)
                continue
            found = value.__globals__.get(name)
            own = getattr(found, "__module__", None) == value.__module__
            if is_elastic(found) or (own and isinstance(found, (FunctionType, type))):
                yield found


def codes(code: CodeType) -> Iterator[CodeType]:
    """Yield a function's code, and that of the functions in it."""
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from codes(each)
