"""The script to run, and what can be learnt from its source before it runs.

An elastic worker is started before it has a world, any other script after; the agent decides by the imports
that the script uses. A script that sends Hello is treated as elastic from then on, so a wrong guess is
corrected.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import shutil
import sys
import warnings
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.machinery import BYTECODE_SUFFIXES, EXTENSION_SUFFIXES, ModuleSpec, PathFinder
from pathlib import Path
from typing import Final

LIBRARY: Final = "elasticjob.trainer.torch"
JAX: Final = "elasticjob.trainer.jax"
LIBRARIES: Final = (LIBRARY, JAX)
"""Ours for training scripts, by framework; of each the name `Elastic` makes a script elastic."""

HUB: Final = frozenset({"accelerate", "huggingface", "lightning", "pytorch_lightning", "transformers"})
READ_AT_IMPORT: Final[Mapping[frozenset[str], re.Pattern[str]]] = {
    HUB: re.compile("(HF|TRANSFORMERS|HUGGING_?FACE|XDG)_"),
    frozenset({"keras", "tensorflow"}): re.compile("(TF_(?!CONFIG)|GRPC_|KERAS_)"),
    frozenset({"flax", "jax", "optax"}): re.compile("(JAX|XLA)_"),
}
"""Variables that packages read when they are imported: a script may set them before."""

PRELOADED: Final = HUB | {"jax", "numpy", "pandas", "scipy", "sklearn", "torch", "torchaudio", "torchvision"}
"""Packages that the warm process imports if the script does: slow to import, and their import starts no
thread, takes no lock that processes share, and asks CUDA nothing."""

AT_IMPORT: Final = re.compile(
    r"(OMP|KMP|GOMP|MKL|OPENBLAS|TORCHINDUCTOR|TORCHDYNAMO)_|TORCH_(?!NCCL|FR_)|PYTORCH_(?!(CUDA_)?ALLOC)"
)
"""Variables that torch, and what it loads, read when they are imported."""

INTEGRATIONS: Final = "elasticjob.trainer.integrations."
LAZY: Final = "transformers"
"""A package whose modules are imported when one of their names is used."""

DIVIDES: Final = "torch.distributed.fsdp"
COMPILER: Final = "torch._dynamo"
"""The module that the first call of `fully_shard` imports, which takes seconds."""


@dataclass(frozen=True)
class Script:
    """A file, a module (`-m`), or with `python=False` any program; and its arguments."""

    name: str
    arguments: tuple[str, ...] = ()
    module: bool = False
    python: bool = True

    def source(self) -> Path | None:
        """Return the file that holds the script, None if it cannot be found."""
        if not self.python:
            return None
        if not self.module:
            return Path(self.name)
        spec = find_module(self.name)
        return Path(spec.origin) if spec is not None and spec.has_location and spec.origin else None


class Unusable(Exception):
    """The script cannot run; `missing` if there is none."""

    def __init__(self, message: str, *, missing: bool) -> None:
        super().__init__(message)
        self.missing = missing


def check(script: Script) -> None:
    """Raise Unusable if the script is missing or is no Python, without importing anything."""
    if not script.python:
        if shutil.which(script.name) is None:
            raise Unusable(f"there is no program {script.name!r}", missing=True)
        return
    if script.module and find_module(script.name) is None:
        raise Unusable(
            f"there is no module {script.name!r} in {os.getcwd()} or on Python's path", missing=True
        )
    path = script.source()
    if path is None or is_package(path):
        return
    try:
        source = path.read_bytes()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise Unusable(f"the script {path} cannot be read: {reason}", missing=True) from None
    if is_compiled(path):
        return
    try:
        with warnings.catch_warnings(action="ignore"):
            compile(source, str(path), "exec", dont_inherit=True)
    except SyntaxError as error:
        text = f": {error.text.strip()}" if error.text else ""
        raise Unusable(f"{path}, line {error.lineno}: {error.msg}{text}", missing=False) from None
    except ValueError as error:
        raise Unusable(f"{path}: {error}", missing=False) from None


def find_module(module: str) -> ModuleSpec | None:
    """Return what `python -m module` would run from here, without importing its packages."""
    name, *rest = module.split(".")
    spec = PathFinder.find_spec(name, [os.getcwd(), *sys.path])
    if spec is None:
        with suppress(ImportError, ValueError):
            spec = importlib.util.find_spec(name)
    for part in rest:
        spec = within(spec, part)
    return (
        within(spec, "__main__") if spec is not None and spec.submodule_search_locations is not None else spec
    )


def within(package: ModuleSpec | None, name: str) -> ModuleSpec | None:
    """Return a module of a package."""
    if package is None or package.submodule_search_locations is None:
        return None
    return PathFinder.find_spec(name, list(package.submodule_search_locations))


def why_cold(script: Script) -> str:
    """Return why a process that has imported torch cannot be this script's, empty if it can: the script sets
    what torch reads at its import.
    """
    source = script.source()
    return _sets_early(source, Path(folder(script)), set()) if source is not None else ""


def _sets_early(source: Path, beside: Path, seen: set[Path]) -> str:
    """Return what a file, or a module beside the script that it imports before torch, sets too late."""
    seen.add(source)
    nodes = parse(source)
    first = min((line for node in nodes for line in imports_at(node)), default=sys.maxsize)
    for name in (
        name for node in nodes for name, line in sets(node) if AT_IMPORT.match(name) and line < first
    ):
        return f"{source.name} sets {name} before torch is imported"
    own = (
        beside / f"{name}.py" for node in nodes for name in imports_of(node, set()) if line_of(node) < first
    )
    found = (_sets_early(each, beside, seen) for each in own if each not in seen and each.is_file())
    return next(filter(None, found), "")


def line_of(node: ast.AST) -> int:
    """Return the line of a statement."""
    return int(getattr(node, "lineno", 0))


def imports_at(node: ast.AST) -> Iterator[int]:
    """Yield the line of an import of a package that the warm process has."""
    match node:
        case ast.Import(names=names, lineno=line) if any(is_from(PRELOADED, each.name) for each in names):
            yield line
        case ast.ImportFrom(module=str(module), lineno=line) if is_from(PRELOADED, module):
            yield line


def sets(node: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield the variables of the environment that a statement sets, and its line."""
    match node:
        case ast.Assign(targets=[ast.Subscript(value=whole, slice=ast.Constant(value=str(name)))]):
            names: list[object] = [name]
        case ast.Call(
            func=ast.Attribute(value=whole, attr="setdefault"), args=[ast.Constant(value=name), *_]
        ):
            names = [name]
        case ast.Call(func=ast.Attribute(value=whole, attr="update"), args=given, keywords=keywords):
            keys = (key for each in given if isinstance(each, ast.Dict) for key in each.keys)
            names = [
                *(key.value for key in keys if isinstance(key, ast.Constant)),
                *(k.arg for k in keywords),
            ]
        case ast.AugAssign(target=whole, op=ast.BitOr(), value=ast.Dict(keys=found)):
            names = [key.value for key in found if isinstance(key, ast.Constant)]
        case _:
            return
    if "environ" in (getattr(whole, "attr", ""), getattr(whole, "id", "")):
        yield from ((name, node.lineno) for name in names if isinstance(name, str))


def folder(script: Script) -> str:
    """Return the folder whose modules the script imports before installed ones."""
    source = script.source()
    if script.module or source is None:
        return os.getcwd()
    return str(source if is_package(source) else source.resolve().parent)


def is_package(path: Path) -> bool:
    """Whether Python runs `path` by the `__main__.py` in it: a folder or a zip file."""
    return (path / "__main__.py").is_file() or (path.is_file() and zipfile.is_zipfile(path))


def is_compiled(path: Path) -> bool:
    """Whether `path` holds no source."""
    return path.suffix in (*BYTECODE_SUFFIXES, *EXTENSION_SUFFIXES)


def imports(script: Script) -> frozenset[str]:
    """Return the names that the script's own source imports; empty if it cannot be read.

    Without packages whose variables it may set first: those have to be imported where it says.
    """
    nodes = syntax(script)
    used = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    names = {name for node in nodes for name in (*imports_of(node, used), *of_lazy(node))}
    own = late_packages(nodes)
    return frozenset(name for name in names if not is_from(own, name))


def syntax(script: Script) -> Sequence[ast.AST]:
    """Return all nodes of the script's own source; none if it cannot be read."""
    path = script.source()
    return parse(path) if path is not None else ()


def parse(path: Path) -> Sequence[ast.AST]:
    """Return all nodes of a source; none if it cannot be read."""
    try:
        return list(ast.walk(ast.parse(path.read_bytes())))
    except (OSError, SyntaxError, ValueError):
        return ()


def late_packages(nodes: Iterable[ast.AST]) -> frozenset[str]:
    """Return the packages whose variables a script may set before it imports them."""
    texts = {text for node in nodes for text in words(node)}
    return frozenset().union(
        *(packages for packages, variable in READ_AT_IMPORT.items() if any(map(variable.match, texts)))
    )


def words(node: ast.AST) -> Iterator[str]:
    """Yield what may be the name of a variable of the environment."""
    match node:
        case ast.Constant(value=str(name)) | ast.keyword(arg=str(name)):
            yield name


def is_from(packages: frozenset[str], name: str) -> bool:
    """Whether a name comes from one of the packages, or from what we have for one."""
    return name.removeprefix(INTEGRATIONS).partition(".")[0] in packages


def of_lazy(node: ast.AST) -> Iterator[str]:
    """Yield `transformers.Trainer` where the script says so."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == LAZY:
        yield f"{LAZY}.{node.attr}"


def imports_of(node: ast.AST, used: set[str]) -> Iterator[str]:
    """Yield the modules that one statement imports; our library only if one of its names is in `used`."""
    match node:
        case ast.Import(names=names):
            yield from (alias.name for alias in names if alias.name not in LIBRARIES or bound(alias) in used)
        case ast.ImportFrom(module=str(module), names=names, level=0):
            if module not in LIBRARIES:
                yield module
                yield from (f"{module}.{alias.name}" for alias in names)
            elif used & {bound(alias) for alias in names}:
                yield from (f"{module}.{'Elastic' if each.name == '*' else each.name}" for each in names)


def bound(alias: ast.alias) -> str:
    """Return the name that an import defines; of all names of our library, the one that matters."""
    return alias.asname or ("Elastic" if alias.name == "*" else alias.name.partition(".")[0])


def is_elastic(names: frozenset[str]) -> bool:
    """Whether a script that imports `names` keeps its state between worlds."""
    return any(is_of_library(each, names) for each in LIBRARIES)


def is_of_library(library: str, names: frozenset[str]) -> bool:
    """Whether a script that imports `names` is elastic by one of ours."""
    return library in names or f"{library}.Elastic" in names


def shareable(script: Script, modules: Iterable[str]) -> frozenset[str]:
    """Return those of the framework's `modules` that may be imported before the script runs."""
    own = late_packages(syntax(script))
    return frozenset(module for module in modules if not is_from(own, module))


def preloads(names: frozenset[str], modules: Iterable[str] = ("torch",)) -> tuple[str, ...]:
    """Return what the warm process imports for a script that imports `names`; `modules` always.

    A script that is elastic with JAX needs no torch, and its library only where JAX may be imported before.
    """
    wanted = {name for name in names if is_from(PRELOADED, name) and is_module(name)}
    own = {each for each in LIBRARIES if is_of_library(each, names)}
    late = {COMPILER} if any(name.startswith(DIVIDES) for name in names) else set()
    usual = set(modules) - ({"torch"} if JAX in own else set())
    kept = own if any(is_from(frozenset({"jax"}), name) for name in wanted) else own - {JAX}
    return tuple(sorted(wanted | kept | late | usual))


def is_module(name: str) -> bool:
    """Whether a dotted name can be a module, or brings one: a name with a capital letter is a class."""
    return name.islower() or name.startswith(f"{LAZY}.")
