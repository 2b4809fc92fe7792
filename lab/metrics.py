"""Every metric of every program, as the code declares it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from prometheus_client import CollectorRegistry
from prometheus_client.registry import Collector

from elasticjob.brain.server import request_seconds
from elasticjob.brain.sharing import Measures as SharingMeasures
from elasticjob.brain.store import database_errors
from elasticjob.controllers.diserver.server import Measures as CallMeasures
from elasticjob.controllers.metrics import Counters
from elasticjob.kube.metrics import Metrics
from elasticjob.master.serving.pages import JobCollector
from elasticjob.master.state.job import Job, Spec

UNITS: Final = (
    ("_timestamp_seconds", "seconds since 1970"),
    ("_seconds", "seconds"),
    ("_bytes", "bytes"),
    ("_cores", "cores"),
    ("_ratio", "0 to 1"),
    ("_score", "0 to 1"),
    ("_per_second", "per second"),
)
"""By the end of the name, that of a counter without `_total`; others are numbers of something."""


class Listing(CollectorRegistry):
    """A registry that shows what was registered."""

    def __init__(self) -> None:
        super().__init__()
        self.collectors: list[Collector] = []

    def register(self, collector: Collector) -> None:
        """Keep a collector."""
        super().register(collector)
        self.collectors.append(collector)


def _example(registry: CollectorRegistry) -> None:
    registry.register(JobCollector(Job(spec=Spec(job="example"))))


def _store(registry: CollectorRegistry) -> None:
    registry.register(database_errors())


PARTS: Final[Mapping[str, tuple[Callable[[CollectorRegistry], object], ...]]] = {
    "master": (_example,),
    "operator": (Counters,),
    "brain": (request_seconds, _store, SharingMeasures),
    "diserver": (CallMeasures,),
    "kube": (Metrics,),
}
"""What registers the metrics of a program; the operator, Brain and di-server have those of `kube` as well."""


@dataclass(frozen=True)
class Declared:
    """A metric: its name as Prometheus stores it, without the suffixes of a histogram."""

    name: str
    type: str
    labels: tuple[str, ...]
    help: str

    @property
    def unit(self) -> str:
        """What its value is in."""
        name = self.name.removesuffix("_total")
        if self.help.startswith("Whether "):
            return "1 or 0"
        return next((unit for end, unit in UNITS if name.endswith(end)), "number")


def declared(part: str) -> tuple[Declared, ...]:
    """Return the metrics of a part, by name."""
    listing = Listing()
    for register in PARTS[part]:
        register(listing)
    return tuple(sorted(_declared(listing), key=lambda each: each.name))


def _declared(listing: Listing) -> Iterator[Declared]:
    for collector in listing.collectors:
        for family in collector.collect():
            labels = labels_of(family if isinstance(collector, JobCollector) else collector)
            name = f"{family.name}_total" if family.type == "counter" else family.name
            yield Declared(name, family.type, labels, family.documentation)


def labels_of(declaring: Any) -> tuple[str, ...]:
    """Return the names of labels; prometheus_client shows them nowhere else before there are samples."""
    return tuple(declaring._labelnames)
