"""All incumbents, by the name that `--oracle` has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from lab.incumbents.batch import ORACLE as BATCH
from lab.incumbents.hpa import ORACLE as HPA
from lab.incumbents.kueue import ORACLES as KUEUE
from lab.incumbents.oracle import Oracle

ROWS: Final[tuple[Oracle, ...]] = (BATCH, *KUEUE, HPA)
ORACLES: Final[Mapping[str, Oracle]] = {each.name: each for each in ROWS}
