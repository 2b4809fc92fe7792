"""Prometheus and Alertmanager around programs of a test, with the monitors and rules of config/prometheus."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import yaml

from elasticjob.kube.objects.kinds import Manifest
from lab.waiting import until
from tests.kit.monitoring.alertmanager import Notification, Receiver, alertmanager
from tests.kit.monitoring.prometheus import Prometheus, prometheus

CONFIG: Final = Path(__file__).parents[3] / "config" / "prometheus"
INTERVAL: Final = "1s"
WINDOW: Final = re.compile(r"\[\d+[smhd]\]")
SECONDS: Final = re.compile(r'(?<!")\b(?:300|600|900|1800|3600|7200|86400)\b(?!")')
QUICK_WINDOW, QUICK_SECONDS = "[10s]", "3"
CAPITAL: Final = re.compile(r"(?<!^)([A-Z])")


@dataclass
class Targets:
    """Which addresses are scraped, by the name of their monitor, with a cluster's labels."""

    folder: Path

    def set(self, monitor: str, addresses: Sequence[str], **labels: str) -> None:
        """Scrape these from now on, and no others, for a monitor of config/prometheus."""
        fresh = self.folder / f"{monitor}.fresh"
        fresh.write_text(json.dumps([{"targets": addresses, "labels": labels}]))
        fresh.rename(self._file(monitor))

    def scrape(self, monitor: str) -> Mapping[str, object]:
        """Return the entry of scrape_configs that prometheus-operator makes of a monitor."""
        spec = yaml.safe_load((CONFIG / f"{monitor}.yaml").read_text())["spec"]
        (endpoint,) = spec.get("endpoints") or spec["podMetricsEndpoints"]
        return {
            "job_name": monitor,
            "metrics_path": endpoint["path"],
            "honor_labels": endpoint.get("honorLabels", False),
            "sample_limit": spec.get("sampleLimit", 0),
            "file_sd_configs": [{"files": [str(self._file(monitor))]}],
            "relabel_configs": [_snake(each) for each in endpoint.get("relabelings", ())],
            "metric_relabel_configs": [_snake(each) for each in endpoint.get("metricRelabelings", ())],
        }

    def _file(self, monitor: str) -> Path:
        return self.folder / f"{monitor}.json"


def _snake(relabeling: Mapping[str, object]) -> dict[str, object]:
    return {CAPITAL.sub(r"_\1", key).lower(): value for key, value in relabeling.items()}


def rules() -> list[Manifest]:
    """Return the groups of rules that are shipped."""
    groups: list[Manifest] = yaml.safe_load((CONFIG / "rules.yaml").read_text())["spec"]["groups"]
    return groups


RULES: Final[list[Manifest]] = [rule for group in rules() for rule in group["rules"]]
METRIC: Final = re.compile(
    r"\b(?:elasticjob|training_operator|controller_runtime|workqueue|rest_client|leader_election)_\w+"
)
"""The name of a metric of ours in an expression."""
RECORDED: Final = re.compile(r"\belasticjob:\w+:\w+")
"""The name of a recorded series."""


def quick(groups: Sequence[Manifest]) -> list[Manifest]:
    """Return the groups with windows, waits and limits of minutes and hours shortened to seconds.

    The expressions are the same otherwise.
    """

    def shortened(rule: Mapping[str, Any]) -> dict[str, Any]:
        expr = SECONDS.sub(QUICK_SECONDS, WINDOW.sub(QUICK_WINDOW, rule["expr"]))
        return {**rule, "expr": expr} | ({"for": "2s"} if "for" in rule else {})

    return [{"name": each["name"], "rules": [shortened(rule) for rule in each["rules"]]} for each in groups]


@dataclass(frozen=True)
class Rig:
    """What a cluster's monitoring consists of."""

    prometheus: Prometheus
    receiver: Receiver
    targets: Targets

    async def is_calm(self, alert: str, labels: Mapping[str, str]) -> None:
        """Wait until an alert does not fire: on a busy machine a scrape may have come too late."""
        selector = ",".join(f'{name}="{value}"' for name, value in {"alertname": alert, **labels}.items())

        async def is_so() -> bool:
            return not await self.prometheus.query(f"ALERTS{{{selector}}}")

        await until(is_so, f"{alert} does not fire")

    async def fires(self, alert: str, labels: Mapping[str, str], since: datetime) -> Notification:
        """Wait until the receiver is told that an alert has begun to fire."""
        await until(
            lambda: any(each.began > since for each in self.receiver.of(alert, labels)), f"{alert} fires"
        )
        return next(each for each in self.receiver.of(alert, labels) if each.began > since)

    async def resolves(self, alert: str, labels: Mapping[str, str]) -> None:
        """Wait until the last that the receiver was told of an alert is that it has been resolved."""
        await until(lambda: self.receiver.of(alert, labels)[-1].status == "resolved", f"{alert} is resolved")


@asynccontextmanager
async def monitoring(folder: Path, *monitors: str) -> AsyncIterator[Rig]:
    """Run both with the quick rules; monitors have no targets before they are set."""
    targets, file = Targets(folder), folder / "rules.json"
    file.write_text(json.dumps({"groups": quick(rules())}))  # YAML holds JSON
    scrapes = [targets.scrape(monitor) for monitor in monitors]
    async with (
        alertmanager(folder, CONFIG / "plain" / "alertmanager.yaml") as receiver,
        prometheus(
            folder, *scrapes, interval=INTERVAL, rules=[file], alertmanager=receiver.address
        ) as server,
    ):
        yield Rig(server, receiver, targets)
