"""The incumbents of Kubernetes."""

from __future__ import annotations

from typing import Final

from lab.incumbents.batch import ORACLE as BATCH
from lab.incumbents.hpa import ORACLE as HPA
from lab.incumbents.kueue import ORACLES as KUEUE
from lab.incumbents.oracle import Oracle

ORACLES: Final[tuple[Oracle, ...]] = (BATCH, *KUEUE, HPA)
