"""The outcome of a comparison: the table on the terminal and the page in docs/."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tests.conformance.known import KNOWN

PAGE = Path(__file__).parents[2] / "docs" / "devcluster-conformance.md"


@dataclass
class Row:
    """One subject: how many probes, which differ, which of them unexplained, which not as recorded."""

    subject: str
    probes: int
    different: list[str] = field(default_factory=list)
    unexplained: list[str] = field(default_factory=list)
    moved: list[str] = field(default_factory=list)


def told(rows: Iterable[Row]) -> str:
    """The table by subject."""
    lines = [f"{'subject':<14}{'probes':>8}{'equal':>8}{'known':>8}{'new':>8}{'moved':>8}"]
    for row in [*rows, total(rows)]:
        known = len(row.different) - len(row.unexplained)
        counts = (row.probes, row.probes - len(row.different), known, len(row.unexplained), len(row.moved))
        lines.append(f"{row.subject:<14}" + "".join(f"{count:>8}" for count in counts))
    return "\n".join(lines)


def total(rows: Iterable[Row]) -> Row:
    found = list(rows)
    answer = Row("all", sum(row.probes for row in found))
    for row in found:
        answer.different += row.different
        answer.unexplained += row.unexplained
        answer.moved += row.moved
    return answer


def page(rows: Iterable[Row]) -> str:
    """docs/devcluster-conformance.md."""
    found = list(rows)
    body = "\n".join(
        f"| {row.subject} | {row.probes} | {row.probes - len(row.different)} | {len(row.different)} |"
        for row in [*found, total(found)]
    )
    return _PAGE.format(table=body, known=_known())


def _known() -> str:
    blocks = []
    for each in KNOWN:
        probes = "; ".join(f"*{name}*" for name in each.places)
        blocks.append(f"- {each.reason}\n  ({probes})")
    return "\n".join(blocks) or "None."


_PAGE = """# How devcluster answers, beside the real API server

`make conformance` sends the probes of `tests/conformance/probes/` to devcluster and to a real control plane
(etcd, kube-apiserver and kube-controller-manager 1.35.4), compares the answers and writes this page. What the
real server answered is kept in `tests/conformance/golden/`: `make test` holds devcluster to it without any
binaries.

## What is compared
- of every answer: status code, body, `Warning` and `Retry-After` headers;
- of every refusal: status code, reason, and the fields at fault with their reasons, but no wording;
- of every watch: its events, in order, with the objects in them;
- what webhooks are sent.

Both sides are first brought into a normal form: uids and generated names become symbols in the order they
appear, times one symbol, versions their rank among those that the probe saw, cluster addresses and node
ports one symbol. These do not count: the order of `managedFields` and entries of controllers in it,
descriptions of printer columns, hashes of storage versions. A step may say that only the code or some parts
count.

## Counts
| subject | probes | equal | different |
| --- | ---: | ---: | ---: |
{table}

## Differences that remain
{known}

## What devcluster does not do
- Conversion webhooks: several versions of a kind differ in `apiVersion` only. A definition with the strategy
  `Webhook` is accepted while its storage version is the only one served.
- Impersonation (`kubectl --as`): answered with 400. Use a token of that user.
- Administering rights: no escalation check, no aggregated ClusterRoles, and of the default roles only
  `cluster-admin`, `system:basic-user`, `system:discovery` and `system:public-info-viewer`.
- Ingresses are stored and shown, and checked by their published schema only.
- Definitions that could not be served, merged or defaulted are refused with the field; the real server
  refuses more of them.
"""
