"""The tables of docs/crd-generation.md, from the rows with which generator and servers are tested."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from elasticjob.api.core import POD_TEMPLATE_SPEC, definitions
from elasticjob.kube.crd.compatibility import changes
from elasticjob.kube.crd.embedded import Detail, embedded_schema
from elasticjob.kube.crd.generate import crd_manifest
from elasticjob.kube.crd.installing import size_of
from elasticjob.kube.crd.model import Declaration
from elasticjob.kube.crd.schemas import UnsupportedSchema
from elasticjob.kube.objects.kinds import Manifest
from tests.kit.crd import rows
from tests.kube.crd import test_compatibility, test_template

MARK = re.compile(r"<!-- table: (\w+) -->\n.*?<!-- end -->", re.DOTALL)


def crd_docs(path: Path) -> str:
    """Return the text of the page with its tables as the rows are now."""
    return MARK.sub(
        lambda found: f"<!-- table: {found[1]} -->\n{TABLES[found[1]]()}<!-- end -->", path.read_text()
    )


def written() -> str:
    """The schema of each construct, and a server's response to Pydantic's own schema of it."""
    return table(
        ("", "You write", "The CRD says", "To Pydantic's own, servers say"),
        ((row.name, code(row.text), code(said(row.schema)), answer(row.answer)) for row in rows.WRITTEN),
    )


def refused() -> str:
    """The refused constructs, and the messages."""
    return table(
        ("", "You write", "The generator says", "Servers would say"),
        (
            (bad.name, code(bad.text), plain(advice(bad)), answer(bad.answer) or bad.why)
            for bad in rows.REFUSED
        ),
    )


def advice(bad: rows.Bad) -> str:
    """Return the generator's message for a bad construct."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pydantic's, on defaults that do not fit
        try:
            crd_manifest(Declaration(rows.kind_with(bad.text)), rows.EMBEDDED)
        except UnsupportedSchema as error:
            return re.sub(r"'([^']{48})[^']{20,}'", r"'\1…'", str(error))
    raise AssertionError(f"{bad.name} is not refused")


def sizes() -> str:
    """The size of a definition with one template, and the handling of a field of a later pod version."""
    effects = {
        Detail.FULL: "pruned, as an API server of that age would; 400 under strict validation",
        Detail.TYPED: "kept in the pod's spec, pruned below it",
        Detail.OPAQUE: "kept, and so is every typo",
    }
    return table(
        (
            "`template`",
            "Bytes of the schema",
            "Bytes of ElasticJob's CRD",
            "Fields that the schema does not know",
        ),
        (
            (
                code(detail.value),
                f"{schema_bytes(detail):,}",
                f"{size_of(test_template_job(detail)):,}",
                effect,
            )
            for detail, effect in effects.items()
        ),
    )


def schema_bytes(detail: Detail) -> int:
    """Return how many bytes the schema of one template has."""
    return len(json.dumps(embedded_schema(POD_TEMPLATE_SPEC, definitions(), detail), separators=(",", ":")))


def test_template_job(detail: Detail) -> Manifest:
    """Return ElasticJob's definition."""
    from elasticjob.api.crds import DECLARATIONS, manifest

    return manifest(DECLARATIONS[0], detail)


def templates() -> str:
    """How servers handle pod templates, by the detail of the schema."""
    return table(
        ("Template", "full", "typed", "opaque"),
        (
            (
                row.name,
                *(
                    fate(each, strict)
                    for each, strict in zip((row.full, row.typed, row.opaque), row.strict, strict=True)
                ),
            )
            for row in test_template.ROWS
        ),
    )


def fate(stored: Any, strict: bool) -> str:
    """Return how a template is handled."""
    if stored == test_template.REFUSED:
        return "refused"
    if stored == "default":
        return "kept, with `protocol: TCP`"
    return "kept" if stored is ... else "pruned; 400 if strict" if strict else "pruned"


def upgrades() -> str:
    """The effect of each change of a schema."""
    shown = []
    for row in test_compatibility.ROWS:
        old, new = test_compatibility.before_and_after((row,))
        what, stored = next(((one.what, one.stored) for one in changes(old, new)), ("–", "nothing changes"))
        shown.append((row.name, plain(what), plain(stored), beside(row)))
    return table(("Change", "Told as", "Stored objects", "Fields beside it can still be edited"), shown)


def beside(row: test_compatibility.Row) -> str:
    """Return whether another field of the same stored object can still be edited."""
    return "yes" if row.near else "no: the object around it is asked again"


TABLES: Mapping[str, Callable[[], str]] = {
    one.__name__: one for one in (written, refused, sizes, templates, upgrades)
}


def table(head: tuple[str, ...], lines: Iterable[tuple[str, ...]]) -> str:
    """Return a table of Markdown."""
    rule = tuple("---" for _ in head)
    return "".join(f"| {' | '.join(line)} |\n" for line in (head, rule, *lines))


def code(text: str) -> str:
    """Return a text as code within a table."""
    return f"`{cell(text)}`"


def plain(text: str) -> str:
    """Return a sentence within a table, with nothing in it that Markdown would take for its own."""
    return re.sub(r"([*_<])", r"\\\1", cell(text))


def cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def said(schema: Manifest) -> str:
    """Return a schema as compact flow-style YAML, without quotes and descriptions."""
    text = json.dumps(undescribed(schema), ensure_ascii=False)
    return re.sub(r'"([\w.-]+)":', r"\1:", text).replace('"', "'")


def undescribed(node: Any) -> Any:
    """Return a schema without descriptions."""
    if isinstance(node, list):
        return [undescribed(item) for item in node]
    if not isinstance(node, dict):
        return node
    return {
        key: undescribed(item) for key, item in node.items() if key != "description" or isinstance(item, dict)
    }


def answer(text: str) -> str:
    """Return the message of a server's refusal."""
    return f"refused: {code(text)}" if text else ""
