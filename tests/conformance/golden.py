"""What the real server answered, kept: one JSON file per subject, one line per probe."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).parent / "golden"
Golden = dict[str, list[dict[str, Any]]]


def read(subject: str) -> Golden:
    """Probe → observations; nothing for a subject that was never recorded."""
    path = _FOLDER / f"{subject}.json"
    found: Golden = json.loads(path.read_text()) if path.exists() else {}
    return found


def write(subject: str, golden: Golden) -> None:
    lines = [f"{json.dumps(name)}: {_compact(seen)}" for name, seen in golden.items()]
    (_FOLDER / f"{subject}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True, ensure_ascii=False)
