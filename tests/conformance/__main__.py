"""`python -m tests.conformance`: every probe sent to both servers, side by side.

Prints each difference and a table by subject; writes docs/devcluster-conformance.md. Ends with 1 when
devcluster
differs where `known.py` does not say so, or when the real server no longer answers as recorded.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import secrets
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from lab.processes import end_on_sigterm
from tests.conformance import golden
from tests.conformance.compare import Difference, differences
from tests.conformance.known import unexplained
from tests.conformance.play import Observation
from tests.conformance.probe import Probe
from tests.conformance.probes import SUBJECTS
from tests.conformance.report import PAGE, Row, page, told
from tests.conformance.running import seen_by
from tests.conformance.servers import embedded, real


def main() -> int:
    asked = _arguments()
    end_on_sigterm()
    with _kubeconfig(asked.kubeconfig) as kubeconfig:
        rows = asyncio.run(_compare(kubeconfig, asked.only, record=asked.record))
    print(told(rows))
    if not asked.only:
        PAGE.write_text(page(rows))
    return 1 if any(row.unexplained or row.moved for row in rows) else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    parser.add_argument(
        "--kubeconfig", type=Path, help="a real server that runs already (default: start one)"
    )
    parser.add_argument(
        "--record", action="store_true", help="keep what the real server answers as golden data"
    )
    parser.add_argument("--only", default="", help="probes whose `subject/name` has this in it")
    asked = parser.parse_args()
    known = [f"{subject}/{each.name}" for subject, probes in SUBJECTS.items() for each in probes]
    if not any(asked.only in name for name in known):
        parser.error(f"--only {asked.only} is in no name of: {', '.join(known)}")
    return asked


@contextlib.contextmanager
def _kubeconfig(given: Path | None) -> Iterator[Path]:
    if given is not None:
        yield given
        return
    from lab.clusters.plane.controlplane import (
        ControlPlane,  # only here: golden data are read without binaries
    )

    with tempfile.TemporaryDirectory() as folder, ControlPlane(Path(folder)) as plane:
        yield plane.kubeconfig


async def _compare(kubeconfig: Path, only: str, *, record: bool) -> list[Row]:
    rows = []
    for subject, probes in SUBJECTS.items():
        chosen = [each for each in probes if only in f"{subject}/{each.name}"]
        if chosen:
            rows.append(await _subject(kubeconfig, subject, chosen, record=record))
    return rows


async def _subject(kubeconfig: Path, subject: str, probes: list[Probe], *, record: bool) -> Row:
    async with embedded() as ours, real(kubeconfig, f"-{secrets.token_hex(2)}") as theirs:
        mine, expected = await asyncio.gather(seen_by(ours, probes), seen_by(theirs, probes))
    recorded = golden.read(subject)
    if record:
        golden.write(
            subject,
            {each.name: expected.get(each.name, recorded.get(each.name, [])) for each in SUBJECTS[subject]},
        )
        recorded = expected
    row = Row(subject, len(probes))
    for each in probes:
        _add(row, each, recorded.get(each.name, []), expected[each.name], mine[each.name])
    print(f"{subject}: {row.probes} probes, {row.probes - len(row.different)} equal", flush=True)
    return row


def _add(
    row: Row, probe: Probe, recorded: list[Observation], expected: list[Observation], mine: list[Observation]
) -> None:
    moved, found = list(differences(recorded, expected)), list(differences(expected, mine))
    if moved:
        row.moved.append(probe.name)
        _print("not as recorded", row.subject, probe, moved)
    if found:
        row.different.append(probe.name)
    left = unexplained(f"{row.subject}/{probe.name}", found)
    if left:
        row.unexplained.append(probe.name)
        _print("different", row.subject, probe, left)


def _print(what: str, subject: str, probe: Probe, found: list[Difference]) -> None:
    print(f"{what}: {subject}/{probe.name}")
    for each in found:
        print(f"    {each.told()}")


if __name__ == "__main__":
    sys.exit(main())
