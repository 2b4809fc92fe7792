"""The table of docs/monitoring.md: every alert of config/prometheus/rules.yaml, by class."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).parent.parent
RULES: Final = ROOT / "config" / "prometheus" / "rules.yaml"
PAGE: Final = ROOT / "docs" / "monitoring.md"
HEAD: Final = ("| class | alert | severity | says |", "| --- | --- | --- | --- |")
TABLE: Final = re.compile(r"<!-- table: alerts -->\n.*?<!-- end -->", re.DOTALL)


def groups() -> list[dict[str, Any]]:
    """Return the groups of rules."""
    found: list[dict[str, Any]] = yaml.safe_load(RULES.read_text())["spec"]["groups"]
    return found


def alerts() -> Iterator[dict[str, Any]]:
    """Return the alerts of all groups."""
    return (rule for group in groups() for rule in group["rules"] if "alert" in rule)


def alert_docs() -> str:
    """Return the text of the page with its table as the rules are now."""
    table = "\n".join((*HEAD, *map(_row, alerts())))
    return TABLE.sub(lambda _: f"<!-- table: alerts -->\n{table}\n<!-- end -->", PAGE.read_text())


def _row(alert: dict[str, Any]) -> str:
    name, labels, summary = alert["alert"], alert["labels"], alert["annotations"]["summary"]
    return f"| {labels['class']} | [{name}](runbooks/{name}.md) | {labels['severity']} | {summary} |"
