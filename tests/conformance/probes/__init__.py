"""The table: subject → its probes."""

from __future__ import annotations

from tests.conformance.probe import Probe
from tests.conformance.probes import apply, crud, patches, subresources

SUBJECTS: dict[str, tuple[Probe, ...]] = {
    "crud": crud.PROBES,
    "patches": patches.PROBES,
    "apply": apply.PROBES,
    "subresources": subresources.PROBES,
}
