"""Generated files: models of built-in types, CRDs, the chart, dashboards, Argo CD's part, docs, examples."""

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
"""The checkout."""
