"""Prometheus and Alertmanager as Debian has them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from elasticjob.cli.laptop.ports import free_port
from lab.processes import Process
from lab.programs import HOST
from lab.programs.postgres import lacking


def prometheus(
    folder: Path,
    scrapes: Sequence[Mapping[str, object]],
    *,
    address: str = HOST,
    interval: str = "200ms",
    rules: Sequence[Path] = (),
    alertmanager: str = "",
) -> Process:
    """A Prometheus server with its files in `folder` and the entries of `scrape_configs`.

    Every `interval` it scrapes and evaluates the files of `rules`; alerts go to host:port of an Alertmanager.
    """
    settings: dict[str, object] = {
        "global": {"scrape_interval": interval, "evaluation_interval": interval},
        "scrape_configs": scrapes,
        "rule_files": [str(path) for path in rules],
    }
    if alertmanager:
        settings["alerting"] = {"alertmanagers": [{"static_configs": [{"targets": [alertmanager]}]}]}
    flags = (f"--storage.tsdb.path={folder / 'data'}", "--rules.alert.resend-delay=1s")
    return _monitor("prometheus", "prometheus", folder, settings, f"{address}:{free_port()}", flags)


def alertmanager(folder: Path, settings: Mapping[str, Any]) -> Process:
    """An Alertmanager with a configuration."""
    flags = (f"--storage.path={folder / 'alertmanager'}", "--cluster.listen-address=")
    where = f"{HOST}:{free_port()}"
    return _monitor("alertmanager", "prometheus-alertmanager", folder, settings, where, flags)


def _monitor(
    name: str, package: str, folder: Path, settings: Mapping[str, Any], where: str, flags: Sequence[str]
) -> Process:
    file = folder / f"{name}.yml"
    file.write_text(json.dumps(settings))  # YAML holds JSON
    program = shutil.which(package) or lacking(package)
    command = [program, f"--config.file={file}", f"--web.listen-address={where}", *flags]
    return Process(name, command, folder, url=f"http://{where}", ready="/-/ready")
