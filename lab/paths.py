"""Where the checkout is, and what of it the bench starts or reads."""

from __future__ import annotations

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
SCRIPTS: Final = ROOT / "lab" / "scripts"
TRAINED: Final = SCRIPTS / "trainer"
LOOPS: Final = SCRIPTS / "loops"
EXAMPLES: Final = ROOT / "examples"
DOCS: Final = ROOT / "docs"
