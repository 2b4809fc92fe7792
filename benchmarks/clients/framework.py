"""`make bench-kube`: our framework beside the other Python clients, on one real API server, same objects.

Each figure is taken in a process of its own, on a control plane that is started for this run.

- *cache*: from the first request until all pods are in memory to be looked up by name; memory is the growth
  of RSS (kept, and at its peak); stall is the longest time for which a task that wants to run each
  millisecond could not. "server" reads and throws away what elasticjob asks for: initial events of a watch;
  below stands how long the server takes to say the same in other ways.
- *watch, live*: a writer changes pods as fast as the server takes it; *replayed*: the server's own stream,
  recorded before, and sent again by a loopback server without TLS as fast as it is read.
- *reconciles/s*: a handler that writes once, to the ConfigMap that changed, which makes it change again.
  "aiohttp" is the API server's limit: the same writes from a plain loop that watches nothing; "server" is
  its limit for clients that watch what they write: the same loop beside an open watch, its bytes discarded.
- *event → start*: from the moment the writer had its answer until the handling of that version began in
  another process (one clock); below 0 the event came before the answer.
- *operator*: RSS of the real `elasticjob operator`, a few seconds after it is ready.

    python -m benchmarks.clients.framework --only cache,watch
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Annotated, Any, Final

from typer import Option

from benchmarks.clients.load import fill, maps, plain
from benchmarks.clients.peers import NAMES, OWN, SERVER, version_of
from benchmarks.clients.plane import NAMESPACE
from benchmarks.commands import chosen, play
from benchmarks.figures import Samples, Sheet, quantile, show
from lab import programs
from lab.clusters.plane.controlplane import ControlPlane
from lab.processes import Dialogue, ProgramFailed, TooSlow, say

PATIENCE: Final = 60.0
"""Seconds after which a peer's figure is "more than that"."""
SETTLE: Final = 1.0
"""Seconds that watches get to be opened, and last changes to be handled."""
ALONE: Final = ("--controllers=*,-root-ca-certificate-publisher-controller",)
"""The controller manager is not to write back the ConfigMap that it keeps in each namespace."""
PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"
MAPS: Final = f"/api/v1/namespaces/{NAMESPACE}/configmaps"


@dataclass(frozen=True)
class Size:
    """How much is measured."""

    pods: int = 5000
    rounds: int = 3
    maps: int = 200
    recorded: int = 1500  # pods that are changed twice for the recording
    times: int = 7  # it is sent so often
    slow_times: int = 1  # and so often to peers that would take minutes
    seconds: float = 1.5
    windows: int = 3
    workers: tuple[int, ...] = (1, 4, 16, 32)
    rate: int = 50
    operator_pods: int = 10_000
    pace_seconds: float = 10.0


QUICK: Final = Size(200, 1, 50, 50, 4, 4, 1.0, 1, (1, 16), 50, 400, 3.0)
SLOW: Final = ("kubernetes_asyncio", "kr8s", "kopf")

UNITS: Final = {
    "seconds": "s",
    "megabytes": "MB kept",
    "peak_megabytes": "MB at the peak",
    "stall_ms": "longest stall, ms",
}
"""The figures of a cache."""
WAYS: Final[Mapping[str, tuple[object, ...]]] = {
    "pages of 500": ("pages", 500),
    "one list": ("whole", ""),
    "one list at version 0": ("whole", 0),
}
"""Other ways in which the server says the same."""


@dataclass(frozen=True)
class Bench:
    """A control plane full of objects, how much is to be measured on it, and what has been."""

    plane: ControlPlane
    size: Size
    folder: Path
    peers: Sequence[str]
    samples: Samples = field(default_factory=Samples)

    @property
    def kubeconfig(self) -> str:
        return str(self.plane.kubeconfig)

    def in_round(self, turn: int) -> Sequence[str]:
        """Return the peers of a round; slow ones take part in the first only."""
        return [peer for peer in self.peers if turn == 0 or peer not in SLOW]

    def measured(self, measure: str, peer: str, *args: object, kubeconfig: str = "") -> Any:
        """Return the figures of one measurement."""
        with self.measuring(measure, peer, *args, kubeconfig=kubeconfig) as program:
            return program.result(PATIENCE)

    def measuring(self, measure: str, peer: str, *args: object, kubeconfig: str = "") -> Any:
        """Begin a measurement, whose program is to be listened to."""
        say(f"  {measure} {peer} {' '.join(map(str, args))}")
        where = kubeconfig or self.kubeconfig
        return self.module("clients.peers", measure, peer, where, *map(str, args))

    def module(self, module: str, *args: str) -> Dialogue:
        """A program of this benchmark, which runs while the block lasts."""
        return Dialogue(module, [sys.executable, "-m", f"benchmarks.{module}", *args], self.folder)


def cache(bench: Bench) -> None:
    """All pods into memory, and as the server lists them."""
    for turn in range(bench.size.rounds):
        for peer in bench.in_round(turn):
            with _borne():
                measured = _filled(bench, peer)
                for name, unit in UNITS.items():
                    bench.samples.add(f"cache {bench.size.pods:,} pods: {unit}", peer, measured[name])
    for way, asked in WAYS.items() if SERVER in bench.peers else ():
        for _ in range(bench.size.rounds):
            with _borne():
                bench.samples.add(f"… as {way}: s", SERVER, bench.measured("listed", SERVER, *asked))


def _filled(bench: Bench, peer: str) -> Mapping[str, float]:
    try:
        measured: Mapping[str, float] = bench.measured("fill", peer, bench.size.pods)
    except TooSlow:
        return dict.fromkeys(UNITS, inf)
    return measured


@contextmanager
def _borne() -> Iterator[None]:
    """Skip a peer or a row that fails; the others are measured."""
    try:
        yield
    except ProgramFailed as error:
        say(f"  no figure: {error}")


def watch(bench: Bench) -> None:
    """Changes as fast as the server makes them."""
    for peer in bench.peers:
        with _borne(), bench.measuring("live", peer, bench.size.seconds) as program:
            program.line(PATIENCE)
            with bench.module("clients.writer", bench.kubeconfig, "flood", PODS, str(bench.size.pods)):
                _add(bench, "watch, live", peer, program.result(PATIENCE))


def replay(bench: Bench) -> None:
    """The same changes as fast as they are read."""
    recording = bench.folder / "recording"
    say("  recording")
    asked = ("record", PODS, str(bench.size.recorded), str(recording))
    with bench.module("clients.writer", bench.kubeconfig, *asked) as writer:
        recorded = writer.result()
    for turn in range(bench.size.rounds):
        for peer in bench.in_round(turn):
            times = bench.size.slow_times if peer in SLOW else bench.size.times
            with _borne(), bench.module("clients.replay", str(recording), str(times)) as server:
                kubeconfig = _plain_kubeconfig(bench.folder, int(server.line()))
                figures = bench.measured("replayed", peer, recorded * times, kubeconfig=str(kubeconfig))
                _add(bench, "watch, replayed", peer, figures)


def _add(bench: Bench, what: str, peer: str, figures: Mapping[str, float]) -> None:
    bench.samples.add(f"{what}: events/s", peer, figures["per_second"])
    bench.samples.add(f"{what}: CPU µs/event", peer, figures["cpu_us"])


def reconcile(bench: Bench) -> None:
    """One write for each change."""
    for workers in bench.size.workers:
        for peer in bench.peers:
            with _borne():
                asked = (NAMESPACE, workers, bench.size.windows, bench.size.seconds)
                windows = bench.measured("reconciled", peer, *asked)
                figure = f"reconciles/s, {workers} worker{'s' * (workers > 1)}"
                bench.samples.add(figure, peer, *(each["per_second"] for each in windows))
                if workers == bench.size.workers[-1]:
                    figure = f"CPU µs/reconcile, {workers} workers"
                    bench.samples.add(figure, peer, *(each["cpu_us"] for each in windows))


def start(bench: Bench) -> None:
    """How late the handling of a change begins."""
    for peer in (peer for peer in bench.peers if peer != SERVER):
        with _borne():
            late = _lateness_of(bench, peer)
            for share, label in ((0.5, "p50"), (0.99, "p99")):
                figure = f"event → start at {bench.size.rate}/s: {label} ms"
                bench.samples.add(figure, peer, quantile(late, share) * 1e3)


def _lateness_of(bench: Bench, peer: str) -> list[float]:
    size = bench.size
    with bench.measuring("started", peer, NAMESPACE, 4) as program:
        program.line()
        time.sleep(SETTLE)
        pace = ("pace", MAPS, str(size.maps), str(size.rate), str(size.pace_seconds))
        with bench.module("clients.writer", bench.kubeconfig, *pace) as writer:
            answered = writer.result()
        time.sleep(SETTLE)
        program.tell()
        return lateness(answered, program.result(PATIENCE))


def lateness(
    answered: Sequence[tuple[str, str, float]], started: Sequence[tuple[str, str, float]]
) -> list[float]:
    """Return for each write how long after its answer the handling of that or a newer version began.

    Raises ProgramFailed where one was never handled.
    """
    by_name: dict[str, list[tuple[int, float]]] = {}
    for name, version, at in started:
        by_name.setdefault(name, []).append((int(version), at))
    late = []
    for name, version, at in answered:
        begun = [moment for seen, moment in by_name.get(name, ()) if seen >= int(version)]
        if not begun:
            raise ProgramFailed(f"version {version} of {name} was never handled")
        late.append(min(begun) - at)
    return late


def operator(bench: Bench) -> None:
    """The real operator, on more pods."""
    if OWN not in bench.peers:
        return
    for pods in (bench.size.pods, bench.size.operator_pods):
        if pods > bench.size.pods:
            asyncio.run(_fill(bench.plane, range(bench.size.pods, pods)))
        bench.samples.add(f"operator RSS at {pods:,} pods, MB", OWN, _operator_rss(bench))


def _operator_rss(bench: Bench) -> float:
    say("  operator")
    with programs.operator(bench.plane.kubeconfig, bench.folder, "--no-webhooks") as program:
        time.sleep(bench.size.seconds)
        return program.rss / 1e6


ROWS: Final[Mapping[str, Callable[[Bench], None]]] = {
    row.__name__: row for row in (cache, watch, replay, reconcile, start, operator)
}


def _plain_kubeconfig(folder: Path, port: int) -> Path:
    """Write the kubeconfig of a server on loopback without TLS."""
    path = folder / "replay.kubeconfig"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "replay", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "nobody", "user": {"token": "none"}}],
        "contexts": [{"name": "replay", "context": {"cluster": "replay", "user": "nobody"}}],
        "current-context": "replay",
    }
    path.write_text(json.dumps(config))
    return path


async def _fill(plane: ControlPlane, pods: range, config_maps: int = 0) -> None:
    say(f"  filling in {len(pods):,} pods")
    async with plain(plane.kubeconfig) as server:
        if config_maps:
            await server.namespace(NAMESPACE)
            await maps(server, NAMESPACE, config_maps)
        await fill(server, NAMESPACE, pods)


@contextmanager
def _full(size: Size, peers: Sequence[str]) -> Iterator[Bench]:
    """A control plane of our own, with its pods and ConfigMaps."""
    with tempfile.TemporaryDirectory(prefix="bench-kube-") as folder:
        say("starting a control plane")
        with ControlPlane(Path(folder, "plane"), controller_manager_flags=ALONE) as plane:
            asyncio.run(_fill(plane, range(size.pods), size.maps))
            yield Bench(plane, size, Path(folder), peers)


NOTES: Final = (
    "median (least–most) of the rounds; each figure from a process of its own",
    "kubernetes_asyncio, kr8s, lightkube have no cache, no queue and no workers: objects are kept in a dict, "
    "changes go through a plain asyncio.Queue, nothing is de-duplicated",
    "kopf: cache = an index of whole bodies; workers = its worker_limit, one object each until 5 s idle; "
    "the write is its handler's patch",
    "aiohttp: a loop of a few lines with json.loads; its reconciles/s are the API server's limit: "
    "the same writes, nothing watched",
    f"{SERVER}: what {OWN} asks for, read by aiohttp and thrown away; its reconciles/s are the limit of "
    "any client that watches what it writes: aiohttp's writes beside one open watch",
    f"{OWN}: keeps bytes, decodes an object when it is read",
)


def main(
    quick: Annotated[bool, Option("--quick", help="small, in about a minute: whether it works")] = False,
    only: Annotated[str, Option(help=f"some of {','.join(ROWS)}; all by default")] = "",
    peers: Annotated[str, Option(help=f"some of {','.join(NAMES)}; all by default")] = "",
    json_file: Annotated[Path | None, Option("--json", help="write all samples there, too")] = None,
) -> None:
    """Measure, print the table."""
    names, began = chosen(peers, NAMES), time.monotonic()
    missing = {*chosen(only, ROWS)}
    with _full(QUICK if quick else Size(), names) as bench:
        for name in chosen(only, ROWS):
            say(f"{name} ({time.monotonic() - began:.0f} s so far)")
            with _borne():
                ROWS[name](bench)
                missing.discard(name)
    versions = [f"{peer} {version_of(peer)}" for peer in names]
    show(Sheet(["", *versions], bench.samples.rows(names), NOTES))
    if json_file:
        json_file.write_text(json.dumps(bench.samples, indent=1, ensure_ascii=False))
    if missing:
        sys.exit(f"error: no figures of {', '.join(sorted(missing))}; see above")


if __name__ == "__main__":
    play(main)
