"""The files of the page, as they travel in the wheel: HTML, modules, styles, and a library for charts."""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).with_name("static")
INDEX: Final = "index.html"
TYPES: Final = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
}


@dataclass(frozen=True)
class Body:
    """A response: bytes, the same compressed, their type, and a tag that changes with them."""

    plain: bytes
    packed: bytes
    type: str
    tag: str


def body_of(plain: bytes, type_: str, level: int = 1) -> Body:
    """Return bytes as a response."""
    return Body(
        plain, gzip.compress(plain, level, mtime=0), type_, f'"{blake2b(plain, digest_size=12).hexdigest()}"'
    )


@cache
def files() -> dict[str, Body]:
    """Return all files by name."""
    found = (path for path in FOLDER.rglob("*") if path.suffix in TYPES)
    return {path.name: body_of(path.read_bytes(), TYPES[path.suffix], 9) for path in found}
