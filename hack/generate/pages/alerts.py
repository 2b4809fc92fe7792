"""The table of docs/monitoring.md: every alert of config/prometheus/rules.yaml, by class."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import yaml

from hack.generate.pages import filled, table
from lab.paths import ROOT

RULES: Final = ROOT / "config" / "prometheus" / "rules.yaml"
PAGE: Final = ROOT / "docs" / "monitoring.md"


def alert_docs() -> str:
    """Return the text of the page with its table as the rules are now."""
    head = ("class", "alert", "severity", "says")
    return filled(PAGE, {"table: alerts": table(head, _rows())})


def _rows() -> Iterator[tuple[str, ...]]:
    for group in yaml.safe_load(RULES.read_text())["spec"]["groups"]:
        for rule in group["rules"]:
            if name := rule.get("alert"):
                labels, summary = rule["labels"], rule["annotations"]["summary"]
                yield labels["class"], f"[{name}](runbooks/{name}.md)", labels["severity"], summary
