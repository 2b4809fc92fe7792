"""The code of a job: a script with files beside it, or a function, which becomes a script."""

from __future__ import annotations

import ast
import builtins
import dis
import inspect
import json
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any, Final

from elasticjob.client.errors import Unusable

MOST_BYTES: Final = 1 << 20
"""What a ConfigMap holds."""
ARGUMENTS: Final = "arguments.json"
LEFT_OUT: Final = frozenset({"__pycache__", "node_modules"})
"""Folders that are not sent, beside those whose names begin with a dot."""
ELSEWHERE: Final = "put large files into the image, or on a volume (--volume CLAIM:/data)"


@dataclass(frozen=True)
class Code:
    """Files by their paths below /code, the one that is run, and its arguments."""

    files: Mapping[str, bytes]
    script: str
    arguments: Sequence[str] = ()

    def __post_init__(self) -> None:
        size = sum(len(name.encode()) + len(content) for name, content in self.files.items())
        _check_size(size, len(self.files), self.script)

    @property
    def stem(self) -> str:
        """What a job is named after."""
        return Path(self.script).stem


def of_script(script: Path, arguments: Iterable[object] = (), files: Iterable[Path] = ()) -> Code:
    """Return a script and the files beside it: each of `files`, and all files in those that are folders.

    A file keeps its path below the folder, others their name. Raises Unusable.
    """
    if not script.is_file():
        raise Unusable(f"there is no file {script}", object=str(script), next_step="name the training script")
    found: dict[str, Path] = {}
    for place, path in _all(files):
        if found.setdefault(place, path).resolve() != path.resolve():
            raise Unusable(
                f"{found[place]} and {path} would both be /code/{place}",
                object=str(path),
                next_step="rename one of them, or give a folder that holds both",
            )
    place = next((place for place, path in found.items() if path.resolve() == script.resolve()), script.name)
    found.setdefault(place, script)
    if found[place].resolve() != script.resolve():
        raise Unusable(
            f"{found[place]} would be in the place of {script}", object=str(script), next_step="rename it"
        )
    return Code(_read(found, place), place, tuple(str(argument) for argument in arguments))


def _read(found: Mapping[str, Path], script: str) -> dict[str, bytes]:
    """Return the contents of files; files that are too large are measured alone: memory may not hold them."""
    contents: dict[str, bytes] = {}
    try:
        _check_size(sum(path.stat().st_size for path in found.values()), len(found), script)
        for place, path in sorted(found.items()):
            place.encode()
            contents[place] = path.read_bytes()
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise Unusable(f"{error.filename} cannot be read: {why}", object=str(error.filename)) from error
    except UnicodeEncodeError as error:
        step = "rename it, or leave it out of --files"
        raise Unusable(f"the name {place!r} is no UTF-8", object=repr(place), next_step=step) from error
    return contents


def _check_size(size: int, files: int, script: str) -> None:
    if size > MOST_BYTES:
        more = f" and {files - 1} more files" if files > 1 else ""
        raise Unusable(
            f"{script}{more}: {size / MOST_BYTES:.1f} MiB, and a ConfigMap holds 1 MiB at most",
            object=script,
            next_step=ELSEWHERE,
        )


def _all(files: Iterable[Path]) -> Iterator[tuple[str, Path]]:
    for given in files:
        if given.is_dir():
            for path in sorted(given.rglob("*")):
                below = path.relative_to(given)
                hidden = any(part.startswith(".") or part in LEFT_OUT for part in below.parts)
                if path.is_file() and not hidden:
                    yield below.as_posix(), path
        elif given.is_file():
            yield given.name, given
        else:
            raise Unusable(f"there is no file {given}", object=str(given), next_step="correct --files")


def of_function(function: Callable[..., Any], arguments: Mapping[str, Any] | None = None) -> Code:
    """Return a script that calls `function` with `arguments`, which travel as JSON.

    The function's source is sent as it is written, and no pickle, so it must be complete: its imports are
    inside, and it uses nothing of the module around it. Raises Unusable, with what is not.
    """
    name, source = _source(function)
    given = dict(arguments or {})
    try:
        inspect.signature(function).bind(**given)
    except TypeError as error:
        raise Unusable(f"{name}() cannot be called so: {error}", object=name, field="arguments") from error
    try:
        written = json.dumps(given, indent=2, allow_nan=False)
    except (TypeError, ValueError) as error:
        step = "give numbers, strings, booleans, lists and dictionaries of them"
        raise Unusable(
            f"the arguments of {name}() are no JSON: {error}", object=name, field="arguments", next_step=step
        ) from error
    script = SCRIPT.format(name=name, source=source.rstrip(), arguments=ARGUMENTS)
    return Code({f"{name}.py": script.encode(), ARGUMENTS: written.encode()}, f"{name}.py")


SCRIPT: Final = '''\
"""Calls {name}() with the arguments in {arguments}."""

from __future__ import annotations

import json
import pathlib


{source}


if __name__ == "__main__":
    {name}(**json.loads((pathlib.Path(__file__).parent / "{arguments}").read_text()))
'''


def _source(function: Callable[..., Any]) -> tuple[str, str]:
    if not inspect.isfunction(function):
        raise Unusable(
            f"{function!r} is no plain function",
            object="function",
            next_step="write a function that creates what it needs, and submit that",
        )
    name = function.__name__
    if not name.isidentifier():
        raise _unfit("a lambda", "has no name and no lines of its own: write it with def")
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        raise _unfit(name, "is a coroutine or a generator: write a plain function that runs it")
    if function.__code__.co_freevars:
        names = ", ".join(function.__code__.co_freevars)
        raise _unfit(name, f"is a closure over {names}: make it an argument, or define it inside")
    try:
        source = _dedent(inspect.getsource(function))
    except (OSError, SyntaxError) as error:
        raise _unfit(
            name, "has no source that can be read: write it into a file or a notebook's cell"
        ) from error
    definition = ast.parse(source).body[0]
    assert isinstance(definition, ast.FunctionDef | ast.If)
    written = definition if isinstance(definition, ast.FunctionDef) else definition.body[0]
    assert isinstance(written, ast.FunctionDef)
    if written.decorator_list:
        raise _unfit(name, f"is decorated with {ast.unparse(written.decorator_list[0])}: submit it without")
    if outside := sorted(_outside(function, written)):
        names = ", ".join(outside)
        raise _unfit(name, f"uses {names} of the module around it: import or define it inside the function")
    return name, source


def _unfit(name: str, why: str) -> Unusable:
    what, _, step = why.partition(": ")
    return Unusable(f"{name} {what}", object="function", next_step=step)


def _dedent(source: str) -> str:
    """Return the source at the left margin; where that would change a string, below an `if`."""
    if not source[0].isspace():
        return source
    below = f"if True:\n{source}"
    (written,) = ast.parse(below).body
    assert isinstance(written, ast.If)
    left = textwrap.dedent(source)
    try:
        same = [ast.dump(node) for node in ast.parse(left).body] == [ast.dump(node) for node in written.body]
    except SyntaxError:
        same = False
    return left if same else below


def _outside(function: Callable[..., Any], written: ast.FunctionDef) -> set[str]:
    """Return the global names that the function reads, but itself and what Python has built in."""
    code: CodeType = function.__code__
    defaults = [*written.args.defaults, *filter(None, written.args.kw_defaults)]
    names = {node.id for each in defaults for node in ast.walk(each) if isinstance(node, ast.Name)}
    return (names | set(_globals(code))) - {written.name, *dir(builtins), "__name__", "__file__"}


def _globals(code: CodeType) -> Iterator[str]:
    stored: set[str] = set()
    for each in dis.get_instructions(code):
        if each.opname in ("STORE_GLOBAL", "DELETE_GLOBAL"):
            stored.add(str(each.argval))
        elif each.opname in ("LOAD_GLOBAL", "LOAD_NAME") and each.argval not in stored:
            yield str(each.argval)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from (name for name in _globals(constant) if name not in _names_of_a_class(constant))


def _names_of_a_class(code: CodeType) -> frozenset[str]:
    """Names that a class body stores and may read with LOAD_NAME, such as __name__ and its own members."""
    return frozenset(
        str(each.argval) for each in dis.get_instructions(code) if each.opname == "STORE_NAME"
    ) | {"__module__", "__qualname__"}
