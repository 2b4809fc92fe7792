"""`python -m tests.conformance`: both servers side by side."""

from __future__ import annotations

import argparse
import asyncio
import secrets
import sys
import time
from pathlib import Path

from tests.conformance import golden
from tests.conformance.compare import differences
from tests.conformance.normal import normalise
from tests.conformance.play import Observation, Server, play
from tests.conformance.probe import Probe
from tests.conformance.probes import SUBJECTS
from tests.conformance.servers import embedded, real

TOGETHER = 6


async def _seen(server: Server, probes: list[Probe]) -> dict[str, list[Observation]]:
    gate = asyncio.Semaphore(TOGETHER)

    async def one(each: Probe) -> list[Observation]:
        async with gate:
            return normalise(await play(server, each))

    found = await asyncio.gather(*(one(each) for each in probes))
    return {each.name: seen for each, seen in zip(probes, found, strict=True)}


async def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kubeconfig", type=Path)
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--only", default="")
    asked = parser.parse_args()
    failed = 0
    for subject, probes in SUBJECTS.items():
        chosen = [each for each in probes if asked.only in f"{subject}/{each.name}"]
        if not chosen:
            continue
        begun = time.monotonic()
        async with embedded() as ours:
            mine = await _seen(ours, chosen)
        if asked.kubeconfig:
            async with real(asked.kubeconfig, f"-{secrets.token_hex(2)}") as theirs:
                expected = await _seen(theirs, chosen)
            if asked.record:
                golden.write(subject, golden.read(subject) | expected)
        else:
            expected = golden.read(subject)
        bad = 0
        for each in chosen:
            found = list(differences(expected[each.name], mine[each.name]))
            if found:
                bad += 1
                print(f"== {subject}: {each.name}")
                for difference in found:
                    print("   ", difference.told())
        print(
            f"#### {subject}: {len(chosen)} probes, {bad} different, {time.monotonic() - begun:.1f} s",
            flush=True,
        )
        failed += bad
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
