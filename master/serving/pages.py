"""HTTP pages without authentication: probes, metrics, status as JSON, and a live page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, NamedTuple

import msgspec
from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from elasticjob.api.rpc.nodes import Gpus, Progress, WorkerState
from elasticjob.master.handlers import check as checks
from elasticjob.master.progress import goodput, progress
from elasticjob.master.rendezvous import rules
from elasticjob.master.scaling.statistics import use_of
from elasticjob.master.shards import book
from elasticjob.master.state.condition import Kind
from elasticjob.master.state.job import Job
from elasticjob.master.state.node import Node

READING = ("GET", "HEAD")
USES: tuple[tuple[str, str, Callable[[Node], float | None]], ...] = (
    ("cpu_cores", "Cores that a node used on average since its last report.", lambda node: use_of(node).cpu),
    (
        "memory_bytes",
        "Memory that a node used at most since its last report.",
        lambda node: use_of(node).memory,
    ),
    ("memory_peak_bytes", "Most memory that a node has used.", lambda node: node.peak),
    ("cpu_configured_cores", "Cores that a node asks for.", lambda node: use_of(node).cores),
    ("memory_configured_bytes", "Memory that a node asks for.", lambda node: use_of(node).bytes),
    (
        "step_seconds",
        "Usual time from step to step of the slowest worker of a node.",
        lambda node: step_time(node),
    ),
    ("samples_per_second", "Records that a node takes in a second.", lambda node: samples(node)),
)
GPUS: tuple[tuple[str, str, Callable[[Gpus], float]], ...] = (
    (
        "gpu_utilization_ratio",
        "How busy the GPUs of a node are on average, from 0 to 1.",
        lambda gpus: gpus.utilization,
    ),
    ("gpu_memory_bytes", "Memory of the GPUs of a node that is used.", lambda gpus: gpus.memory),
    ("gpu_memory_total_bytes", "Memory of the GPUs of a node.", lambda gpus: gpus.memory_total),
)


class Trouble(NamedTuple):
    """Seconds for which the job's state could not be saved, and the unexpected errors of each loop."""

    unsaved: float = 0.0
    failed: Mapping[str, float] = {}


NONE = Trouble()


def render(request: web.BaseRequest, job: Job, now: datetime, trouble: Trouble) -> web.Response:
    """Return the page at the request's path; 404 with the list of pages; 405 for methods that write."""
    page = PAGES.get(request.path)
    if page is None:
        return web.Response(status=404, text=f"no such page; there are {', '.join(PAGES)}\n")
    if request.method not in READING:
        return web.Response(status=405, text="pages are read only\n", headers={"Allow": ", ".join(READING)})
    return page(goodput.close(job, now), now, trouble)


def status(job: Job, now: datetime) -> dict[str, Any]:
    """Return the job's state as JSON data."""
    training, world = job.training, job.world
    rate = progress.speed(training)
    trouble = book.trouble(job.shards)
    return {
        "job": job.spec.job,
        "sentence": rules.sentence(job, now) + (f"; {trouble}" if trouble else ""),
        "round": job.round,
        "verdict": job.verdict,
        "bounds": {
            "min": job.spec.bounds.smallest,
            "max": job.spec.bounds.largest,
            "unit": job.spec.bounds.unit,
        },
        "world": world,
        "nodes": [_node(job, node, now) for node in sorted(job.nodes.values(), key=lambda n: n.place)],
        "progress": training.progress,
        "stepsPerSecond": rate and round(rate.steps, 3),
        "samplesPerSecond": rate and round(rate.samples, 3),
        "eta": progress.eta(training),
        "lostSteps": training.lost,
        "standstill": round(training.standstill, 3),
        "checkpoint": progress.checkpoints_of(job),
        "goodputRatio": progress.shown_goodput(job),
        "productiveSeconds": round(job.account.seconds.get(goodput.Cause.PRODUCTIVE, 0.0), 3),
        "badputSeconds": goodput.lost(job.account),
        "restarts": job.restarts,
        "findings": job.health.findings,
        "slow": job.health.slow,
        "check": checks.sentence(job),
        "rounds": training.changes,
        "datasets": [book.standing(ledger) for ledger in job.shards.datasets.values()],
    }


def state(job: Job, node: Node) -> str:
    """Return the node's state as one word."""
    rules = (
        (node.finished, "finished"),
        (node.failed, "failed"),
        (node.leaving, "leaving"),
        (bool(node.excluded), "excluded"),
        (node.joined is not None, "waiting"),
        (job.member(node.name), "training"),
        (node.beat is not None, "starting"),
    )
    return next((word for true, word in rules if true), node.phase.lower())


def step_time(node: Node) -> float | None:
    """Return the usual seconds from step to step of the node's slowest worker; None if unknown."""
    return max((state.usual for state in _workers(node)), default=0.0) or None


def samples(node: Node) -> float | None:
    """Return the records that the node's workers take in a second; None if unknown."""
    return sum(state.samples for state in _workers(node)) or None


def _workers(node: Node) -> tuple[WorkerState, ...]:
    """Return what the node has told of its workers in the world that it is in."""
    return node.told.workers if node.told and node.told.round == node.round else ()


class JobCollector(Collector):
    """The Prometheus metrics of one job, computed from its state at every scrape."""

    def __init__(self, job: Job, trouble: Trouble = NONE) -> None:
        self._job, self._trouble = job, trouble

    def collect(self) -> Iterator[Metric]:
        """Yield one sample per metric, labelled with the job's name."""
        job = self._job
        for name, what, value in _values(job):
            yield _gauge(job, name, what, value)
        what = "Time for which the job's state could not be saved, which a next master would lack."
        yield _gauge(job, "snapshot_unsaved_seconds", what, self._trouble.unsaved)
        what = "Passes of a loop of the master that met an unexpected error."
        failed = CounterMetricFamily("elasticjob_failed_passes", what, labels=["job", "loop"])
        for loop, count in self._trouble.failed.items():
            failed.add_metric([job.spec.job, loop], count)
        yield failed
        restarts = CounterMetricFamily(
            "elasticjob_worker_restarts", "Workers that ended with an error.", labels=["job"]
        )
        restarts.add_metric([job.spec.job], job.restarts)
        yield restarts
        findings = CounterMetricFamily(
            "elasticjob_findings", "Verdicts about workers and nodes, by reason.", labels=["job", "reason"]
        )
        for kind in Kind:
            findings.add_metric([job.spec.job, kind.value], job.health.counts.get(kind, 0))
        yield findings
        yield from _times(job)
        yield _gauge(job, "stragglers", "Workers that are slow now.", len(job.health.slow))
        states = Counter(state(job, node) for node in job.nodes.values())
        yield _count(job, "nodes", "Nodes by what they do.", "state", states)
        doing = Counter(str(each.doing) for node in job.nodes.values() for each in _workers(node))
        yield _count(job, "workers", "Workers by what they do.", "doing", doing)
        yield from _uses(job)


def _values(job: Job) -> list[tuple[str, str, float | None]]:
    training, world = job.training, job.running
    kept, left = progress.checkpoints_of(job), restarts_left(job)
    latest, rate = training.progress or Progress(step=0), progress.speed(training)
    return [
        ("step", "Optimizer steps since the beginning of the job.", latest.step),
        ("samples", "Records consumed by the job.", latest.samples),
        ("epoch", "Epochs of the data.", latest.epoch),
        ("loss", "The last reported loss.", latest.loss),
        ("steps_per_second", "Speed in the present round.", rate and rate.steps),
        ("samples_per_second", "Records per second in the present round.", rate and rate.samples),
        ("usual_step_seconds", "Usual time from step to step of the slowest worker.", usual_step(job)),
        ("last_step_timestamp_seconds", "When a step ended last.", _stamp(progress.last_step(job))),
        ("hanging", "Whether workers hang now, 1 or 0.", float(job.health.hang is not None)),
        ("world_size", "Workers that train together now.", world.size if world else 0),
        ("world_nodes", "Nodes that train together now.", len(world.members) if world else 0),
        ("round", "The round of the last world.", job.round),
        (
            "goodput_ratio",
            "Share of the time of all workers that was productive, from 0 to 1.",
            progress.shown_goodput(job),
        ),
        (
            "restarts_allowed",
            "How many times a node may be replaced after a failure.",
            job.spec.restart_count if left is not None else None,
        ),
        ("restarts_left", "Failures that the node with the most of them may still have.", left),
        ("checkpoint_step", "Step of the newest checkpoint in storage.", kept.stored),
        ("checkpoint_memory_step", "Step of the newest checkpoint in the memory of nodes.", kept.in_memory),
        ("checkpoint_seconds", "From the copy of the newest checkpoint to its commit.", kept.seconds),
        (
            "checkpoint_timestamp_seconds",
            "When the newest checkpoint reached storage; before the first, when nodes began to make some.",
            _stamp(training.stored_at),
        ),
        ("checkpoint_failing", "Whether the last checkpoint is not in storage, 1 or 0.", bool(kept.error)),
    ]


def usual_step(job: Job) -> float | None:
    """Return the usual seconds from step to step of the slowest worker; None if unknown."""
    told = max((step_time(node) or 0.0 for node in job.nodes.values()), default=0.0)
    rate = progress.speed(job.training)
    return told or (1 / rate.steps if rate and rate.steps > 0 else None)


def restarts_left(job: Job) -> int | None:
    """Return how often the node with the most failures may still fail; None where none is replaced."""
    if job.spec.replicas is None:
        return None
    most = max((node.failures for node in job.nodes.values()), default=0)
    return max(0, job.spec.restart_count - most)


def _stamp(at: datetime | None) -> float | None:
    return at.timestamp() if at else None


def _times(job: Job) -> Iterator[Metric]:
    """Where the time of the workers went, and for how long no step was made."""
    what = "Steps that were made again, since neither a checkpoint nor a worker had them."
    again = CounterMetricFamily("elasticjob_lost_steps", what, labels=["job"])
    again.add_metric([job.spec.job], job.training.lost)
    yield again
    what = "Time without a step because the world changed."
    standstill = CounterMetricFamily("elasticjob_standstill_seconds", what, labels=["job"])
    standstill.add_metric([job.spec.job], job.training.standstill)
    yield standstill
    name, what = "elasticjob_badput_seconds", "Time of workers that was lost, by cause."
    lost = CounterMetricFamily(name, what, labels=["job", "cause"])
    for cause, seconds in goodput.lost(job.account).items():
        lost.add_metric([job.spec.job, cause], seconds)
    yield lost
    what = "Time of workers in steps that count, and in what is between them."
    productive = CounterMetricFamily("elasticjob_productive_seconds", what, labels=["job"])
    productive.add_metric([job.spec.job], job.account.seconds.get(goodput.Cause.PRODUCTIVE, 0.0))
    yield productive


def _uses(job: Job) -> Iterator[Metric]:
    """Resources that live nodes use and have; 0 is a reading of a GPU, and unknown elsewhere."""
    alive = [node for node in job.nodes.values() if node.alive]
    for name, what, value in USES:
        yield _of_nodes(job, name, what, ((node, value(node) or None) for node in alive))
    for name, what, amount in GPUS:
        yield _of_nodes(job, name, what, ((node, amount(gpus)) for node in alive if (gpus := _gpus(node))))


def _gpus(node: Node) -> Gpus | None:
    return node.usage.gpus if node.usage else None


def _of_nodes(job: Job, name: str, what: str, values: Iterable[tuple[Node, float | None]]) -> Metric:
    gauge = GaugeMetricFamily(f"elasticjob_node_{name}", what, labels=["job", "node", "role"])
    for node, value in values:
        if value is not None:
            gauge.add_metric([job.spec.job, node.name, node.role], value)
    return gauge


def _gauge(job: Job, name: str, what: str, value: float | None) -> Metric:
    """Return a gauge, without a sample where the value is unknown."""
    gauge = GaugeMetricFamily(f"elasticjob_{name}", what, labels=["job"])
    if value is not None:
        gauge.add_metric([job.spec.job], value)
    return gauge


def _count(job: Job, name: str, what: str, label: str, counts: Mapping[str, int]) -> Metric:
    gauge = GaugeMetricFamily(f"elasticjob_{name}", what, labels=["job", label])
    for word, count in sorted(counts.items()):
        gauge.add_metric([job.spec.job, word], count)
    return gauge


def _node(job: Job, node: Node, now: datetime) -> dict[str, Any]:
    return {
        "name": node.name,
        "role": node.role,
        "index": node.index,
        "state": state(job, node),
        "phase": node.phase,
        "pod": node.pod,
        "round": node.round,
        "heard": node.beat and round((now - node.beat).total_seconds(), 2),
        "failures": node.failures,
        "failure": node.failure,
        "excluded": node.excluded,
        "workers": node.told.workers if node.told else (),
        "usage": node.usage,
        "memoryPeak": node.peak,
        "stepSeconds": step_time(node),
        "samplesPerSecond": samples(node),
    }


def _metrics(job: Job, now: datetime, trouble: Trouble) -> web.Response:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(JobCollector(job, trouble))
    return web.Response(body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST})


def _status(job: Job, now: datetime, _: Trouble) -> web.Response:
    return web.Response(body=msgspec.json.encode(status(job, now)), content_type="application/json")


def _alive(job: Job, now: datetime, _: Trouble) -> web.Response:
    return web.Response(text="ok\n")


def _live(job: Job, now: datetime, _: Trouble) -> web.Response:
    return web.Response(text=LIVE, content_type="text/html")


LIVE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>elasticjob</title>
<meta name="viewport" content="width=device-width">
<style>
  body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem; }
  body { color: #1c2733; background: #fff }
  h1 { font-size: 1.3rem; margin: 0 } #sentence { color: #51606f; margin: .2rem 0 1.2rem }
  #lost { color: #51606f; margin: .8rem 0 0 }
  dl { display: grid; grid-template-columns: repeat(auto-fit, minmax(8rem, 1fr)); gap: .6rem; margin: 0 }
  dl div { background: #f3f6f9; border-radius: .5rem; padding: .5rem .8rem }
  dt { font-size: .8rem; color: #51606f } dd { margin: 0; font-size: 1.2rem }
  table { border-collapse: collapse; width: 100%; margin-top: 1.5rem; font-size: .9rem }
  th, td { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid #e2e8ee } th { color: #51606f }
</style></head><body>
<h1 id="job">elasticjob</h1><p id="sentence">…</p><dl id="facts"></dl>
<p id="lost"></p>
<table><thead><tr><th>Node</th><th>State</th><th>Round</th><th>Pod</th><th>Step</th><th>Samples/s</th><th>Cores</th>
<th>Memory</th><th>GPU</th><th>GPU memory</th><th>Last failure</th></tr></thead>
<tbody id="nodes"></tbody></table>
<ul id="findings"></ul>
<table><thead><tr><th>Round</th><th>Why</th><th>Workers</th><th>Step</th><th>Standstill</th></tr></thead>
<tbody id="rounds"></tbody></table>
<script>
const at = id => document.getElementById(id), number = (x, n) => x == null ? "–" : x.toFixed(n)
const percent = x => x == null ? "–" : number(100 * x, 1) + " %"
const gib = x => x == null ? "–" : number(x / 2 ** 30, 1) + " GiB"
const row = cells => { const tr = document.createElement("tr")
  for (const cell of cells) tr.insertCell().textContent = cell ?? "–"; return tr }
const fact = ([name, value]) => { const div = document.createElement("div")
  for (const [tag, text] of [["dt", name], ["dd", value]])
    div.appendChild(document.createElement(tag)).textContent = text
  return div }
async function draw() {
  const s = await (await fetch("status")).json(), p = s.progress ?? {}
  at("job").textContent = document.title = s.job
  at("sentence").textContent = s.sentence
  at("facts").replaceChildren(...[["Step", p.step ?? "–"], ["Loss", number(p.loss, 4)],
    ["Steps/s", number(s.stepsPerSecond, 2)], ["Round", s.round],
    ["Goodput", percent(s.goodputRatio)], ["Standstill", number(s.standstill, 2) + " s"],
    ["Checkpoint", s.checkpoint.stored || s.checkpoint.in_memory
      ? `step ${s.checkpoint.stored ?? 0}, in memory ${s.checkpoint.in_memory ?? 0}` : "–"]].map(fact))
  const lost = Object.entries(s.badputSeconds).filter(each => each[1] >= 1).sort((a, b) => b[1] - a[1])
  at("lost").textContent = lost.length == 0 ? "" : "Seconds of workers that were lost: "
    + lost.map(([cause, seconds]) => `${cause} ${number(seconds, 0)}`).join(", ")
  at("nodes").replaceChildren(...s.nodes.map(n => { const u = n.usage ?? {}, gpus = u.gpus
    return row([n.name, n.state, n.round || "–", n.pod, n.stepSeconds && number(n.stepSeconds, 3) + " s",
      number(n.samplesPerSecond, 0), number(u.cpu, 1), gib(u.memory), gpus && percent(gpus.utilization),
      gpus && `${gib(gpus.memory)} of ${gib(gpus.memory_total)}`, n.failure]) }))
  at("findings").replaceChildren(...[...s.findings].reverse().map(f => {
    const li = document.createElement("li")
    const end = f.until ? ` (until ${f.until.slice(11, 19)})` : ""
    li.textContent = `${f.at.slice(11, 19)} ${f.reason}${end}: ${f.message}`; return li }))
  at("rounds").replaceChildren(...[...s.rounds].reverse().map(r => row([r.round, r.reason, r.workers,
    r.step_before ?? 0, r.standstill == null ? "–" : number(r.standstill, 2) + " s"])))
}
const loop = () => draw().catch(error => at("sentence").textContent = "the master does not answer: " + error)
  .finally(() => setTimeout(loop, 1000))
loop()
</script></body></html>
"""

PAGES: dict[str, Callable[[Job, datetime, Trouble], web.Response]] = {
    "/": _live,
    "/status": _status,
    "/metrics": _metrics,
    "/healthz": _alive,
    "/readyz": _alive,
}
