"""Files for containers: each appears whole or not at all."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def replace(path: Path, content: bytes, mode: int) -> Path:
    """Write a file beside its place and rename it, so that no reader sees half of it; its path."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:
        file.write(content)
    draft.chmod(mode)
    return draft.replace(path)
