"""Each field of a kind is of use: the product reads what specs ask for, and writes what statuses say."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel

from elasticjob.api.crds import DECLARATIONS

PRODUCT = ("brain", "cli", "client", "controllers", "master", "sizing", "trainer", "webhooks")
READ = re.compile(r"\.([a-z_]\w*)|\b([a-z_]\w*)\(|\"([a-z]+_\w+)\"|^(?:from .* import|   ) ([\w, ]+)$", re.M)
"""Attributes, calls, names of fields in strings, and lists of imports."""


def sources(*rooms: str) -> str:
    """Return the text of rooms without their checks: that a field is checked is no use of it."""
    files = (path for room in rooms for path in Path("elasticjob", room).rglob("*.py"))
    return "\n".join(path.read_text() for path in files if "checks" not in (path.parent.name, path.stem))


def parts(tree: ast.Module | ast.ClassDef) -> Iterator[tuple[str, set[str]]]:
    """Yield the functions, properties and tables of `api`, with the names in them; validators run unasked."""
    for each in tree.body:
        match each:
            case ast.ClassDef():
                yield from parts(each)
            case ast.FunctionDef(name=name):
                runs = any("_validator" in ast.unparse(one) for one in each.decorator_list)
                yield ("convert" if runs else name), names(each)
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                yield name, names(each)


def names(tree: ast.AST) -> set[str]:
    found = set[str]()
    for each in ast.walk(tree):
        match each:
            case ast.Attribute(attr=name) | ast.Name(id=name) | ast.Constant(value=str(name)):
                found.add(name)
    return found


def fields(part: str) -> Iterator[tuple[str, str, str]]:
    """Yield the fields of all specs, or of all statuses: model, name, and name in YAML."""
    for kind in (declaration.kind for declaration in DECLARATIONS):
        if part in kind.model.model_fields:
            for model in set(models(kind.model.model_fields[part].annotation)):
                for name, field in model.model_fields.items():
                    if "without effect" not in (field.description or ""):
                        yield model.__name__, name, field.alias or name


def models(form: Any) -> Iterator[type[BaseModel]]:
    """Yield the models of `api` in a type, and in the fields of those."""
    if isinstance(form, type) and issubclass(form, BaseModel) and ".api." in form.__module__:
        yield form
        for field in form.model_fields.values():
            yield from models(field.annotation)
    for each in get_args(form):
        yield from models(each)


def test_what_a_spec_asks_for_is_read() -> None:
    """By the product, or by what it calls in `api`."""
    found = (name for groups in READ.findall(sources(*PRODUCT)) for name in groups)
    read = {name for names_ in found for name in re.split(r"[, ]+", names_)}
    inside = list(parts(ast.parse(sources("api").replace("from __future__ import annotations", ""))))
    while more := set[str]().union(*(found for name, found in inside if name in read)) - read:
        read |= more
    assert [field for field in fields("spec") if read.isdisjoint(field[1:])] == []


def test_what_a_status_says_is_written() -> None:
    written = {*re.findall(r"\b(\w+)=|\"(\w+)\"", sources(*PRODUCT))}
    said = {name for both in written for name in both}
    assert [field for field in fields("status") if said.isdisjoint(field[1:])] == []
