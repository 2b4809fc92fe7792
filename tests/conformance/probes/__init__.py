"""The table: subject → its probes."""

from __future__ import annotations

from tests.conformance.probe import Probe
from tests.conformance.probes import (
    access,
    admission,
    apply,
    builtins,
    collection,
    crud,
    customs,
    definitions,
    discovery,
    kubectl,
    lists,
    patches,
    subresources,
    watches,
)

SUBJECTS: dict[str, tuple[Probe, ...]] = {
    "collection": collection.PROBES,  # first: namespaces go soonest before others do
    "crud": crud.PROBES,
    "patches": patches.PROBES,
    "apply": apply.PROBES,
    "subresources": subresources.PROBES,
    "lists": lists.PROBES,
    "watches": watches.PROBES,
    "definitions": definitions.PROBES,
    "customs": customs.PROBES,
    "admission": admission.PROBES,
    "builtins": builtins.PROBES,
    "access": access.PROBES,
    "discovery": discovery.PROBES,
    "kubectl": kubectl.PROBES,
}
