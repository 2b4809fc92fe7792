"""Laws of all metrics of all programs: names, units, help, labels, and that series of a job end with it."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics import MetricWrapperBase

from elasticjob.api.rpc.nodes import Doing, Gpus, Kept, Progress, Report, Usage, WorkerState
from elasticjob.brain import main as brain
from elasticjob.brain.settings import Settings as BrainSettings
from elasticjob.brain.store import open_store
from elasticjob.controllers import main as operator
from elasticjob.controllers.diserver import main as diserver
from elasticjob.controllers.diserver.settings import Settings as DIServerSettings
from elasticjob.controllers.metrics import Counters
from elasticjob.controllers.settings import Settings
from elasticjob.kube.client.client import Client
from elasticjob.kube.client.credentials import Config
from elasticjob.master.progress import goodput
from elasticjob.master.serving.pages import JobCollector, Trouble
from elasticjob.master.state.job import Job
from lab import metrics as rows
from lab.build.jobs import NOW, at, job, plan
from lab.metrics import PARTS, Declared, Listing, declared, labels_of
from lab.virtual.master import played, pod

METRICS: Final = {part: declared(part) for part in PARTS}
EVERY: Final = [pytest.param(each, id=each.name) for part in METRICS.values() for each in part]
NAME: Final = re.compile(
    r"(elasticjob|training_operator|controller_runtime|workqueue|rest_client|leader_election|certwatcher)(_[a-z]+)+"
)
SENTENCE: Final = re.compile(r"[A-Z][^.]*[a-z)0-9]\.")
LABELS: Final = {
    *(
        "job",
        "job_namespace",
        "job_name",
        "role",
        "node",
        "phase",
        "state",
        "doing",
        "reason",
        "cause",
        "title",
    ),
    *("loop", "framework", "outcome", "direction", "controller", "name", "priority", "result"),
    *("kind", "webhook", "configuration", "code", "method", "host", "fate", "verb", "call"),
}
"""Names that mean one thing everywhere; `namespace`, `pod`, `instance` and `component` belong to targets."""
DECLARES: Final = re.compile(
    r"^from prometheus_client\S* import [(\w, \n]*(Counter|Gauge|Histogram|Summary|Info|Enum|MetricFamily)\b",
    re.MULTILINE,
)
OF_PODS: Final = {"node"}
"""Labels whose values are as many as the pods that a cluster ever had."""
OF_JOBS: Final = {"job", "job_name"}
WRONG_UNITS: Final = re.compile(r"_(ms|millis|milliseconds|minutes|hours|kb|mb|gb|kib|mib|gib|percent)(_|$)")


@pytest.mark.parametrize("metric", EVERY)
def test_a_name_tells_type_and_unit(metric: Declared) -> None:
    assert NAME.fullmatch(metric.name)
    assert not WRONG_UNITS.search(metric.name)
    assert metric.name.endswith("_total") == (metric.type == "counter")
    if metric.type == "histogram":
        assert metric.unit == "seconds"
    if metric.help.startswith("When "):
        assert metric.name.endswith("_timestamp_seconds")
    if metric.help.startswith("Time "):
        assert metric.unit == "seconds"
    if "from 0 to 1" in metric.help:
        assert metric.unit == "0 to 1"


@pytest.mark.parametrize("metric", EVERY)
def test_help_is_a_sentence(metric: Declared) -> None:
    assert SENTENCE.fullmatch(metric.help)
    assert len(metric.help.split()) >= 3


@pytest.mark.parametrize("metric", EVERY)
def test_labels_are_few_and_sums_have_none_of_pods(metric: Declared) -> None:
    assert set(metric.labels) <= LABELS
    if metric.type != "gauge":
        assert not OF_PODS & set(metric.labels)
    if metric.type == "histogram":  # a dozen series each
        assert not OF_JOBS & set(metric.labels)
    assert ("job_name" in metric.labels) <= ("job_namespace" in metric.labels)


def test_each_module_that_declares_metrics_is_in_a_row_of_parts() -> None:
    """One that no row registers is on no page, and no law here is asked about it."""
    files = [path for room in Path("elasticjob").iterdir() for path in room.rglob("*.py")]
    declaring = [path for path in files if DECLARES.search(path.read_text())]
    modules = {".".join(path.with_suffix("").parts) for path in declaring}
    assert modules - {getattr(each, "__module__", "") for each in vars(rows).values()} == set()
    assert len(modules) > 5


def test_each_name_is_declared_once() -> None:
    names = [each.name for part in METRICS.values() for each in part]
    assert len(names) == len(set(names))


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_promtool_finds_nothing_wrong() -> None:
    pages = [generate_latest(filled(part)) for part in PARTS if part != "master"]
    text = generate_latest(master()) + b"".join(pages)
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_a_master_that_trains_has_every_metric() -> None:
    assert {name_of(family) for family in master().collect() if family.samples} == names_of("master")


async def test_programs_have_the_metrics_that_the_page_lists(tmp_path: Path) -> None:
    settings = BrainSettings(database=f"sqlite:///{tmp_path}/brain.db", share="goodput")
    async with apart() as (client, session), open_store(settings.database) as store:
        begun = brain.compose(client, settings, store, session)
        async with brain.serving(settings, store, begun.metrics.registry):
            assert served(begun.metrics.registry) == names_of("brain", "kube")
        registry = operator.compose(client, Settings()).metrics.registry
        assert served(registry) == names_of("operator", "kube")
        registry = diserver.compose(client, DIServerSettings())[0].metrics.registry
        assert served(registry) == names_of("diserver", "kube")


def test_series_of_a_job_end_with_it() -> None:
    registry = CollectorRegistry()
    counters = Counters(registry)
    since = [transition("Running", 5), transition("Restarting", 5)]
    for phase in ("Pending", "Running", "Restarting"):
        counters.note_phase(job(status={"phase": phase, "conditions": since}), NOW)
        assert [labels["phase"] for labels in of_jobs(registry)] == [phase]
    key = job().key
    counters.note_look(key, True, {"worker": NOW}, (2, 3))
    counters.note_plans(key, [plan("more", phase="Scaling")])
    counters.note_plans(key, [plan("more", phase="Failed")])
    assert len(of_jobs(registry)) > 3
    counters.forget(key)
    counters.note_plans(key, [plan("more", phase="Failed")])
    counters.note_look(key, True, {"worker": NOW})
    assert of_jobs(registry) == []


def test_the_time_of_a_phase_survives_the_operator() -> None:
    registry = CollectorRegistry()
    conditions = [transition("Created", 0), transition("Running", 60), transition("Training", 90)]
    counters = Counters(registry)
    counters.note_phase(job(status={"phase": "Running", "conditions": conditions}), NOW + timedelta(hours=1))
    labels = {"job_namespace": "ml", "job_name": "digits", "phase": "Running"}
    began = registry.get_sample_value("elasticjob_job_phase_timestamp_seconds", labels)
    assert began == (NOW + timedelta(seconds=60)).timestamp()


@pytest.mark.parametrize(
    ("phase", "runs", "since"),
    [
        ("Pending", "False", 60),  # plans that come and go are no news of nodes
        ("Restarting", "False", 60),
        ("Restarting", "True", 90),
        ("Scaling", "True", 120),
        ("Running", "True", 120),
    ],
)
def test_a_job_waits_since_its_last_node_ran(phase: str, runs: str, since: int) -> None:
    registry = CollectorRegistry()
    running = {**transition("Running", 60), "status": runs}
    conditions = [transition("Created", 0), running, transition("Restarting", 90), transition("Scaling", 120)]
    Counters(registry).note_phase(job(status={"phase": phase, "conditions": conditions}), NOW)
    labels = {"job_namespace": "ml", "job_name": "digits", "phase": phase}
    began = registry.get_sample_value("elasticjob_job_phase_timestamp_seconds", labels)
    assert began == (NOW + timedelta(seconds=since)).timestamp()


def test_plans_are_counted_once_and_by_outcome() -> None:
    registry = CollectorRegistry()
    counters = Counters(registry)
    counters.note_phase(job(status={"phase": "Running"}), NOW)
    key = job().key
    counters.note_plans(key, [plan("old", phase="Failed"), plan("new", phase="Scaling")])
    for _ in range(2):
        counters.note_plans(key, [plan("new", phase="Failed")])

    def count(outcome: str) -> float | None:
        labels = {"job_namespace": "ml", "job_name": "digits", "outcome": outcome}
        return registry.get_sample_value("elasticjob_plans_total", labels)

    assert {each: count(each) for each in ("Succeeded", "Failed", "Superseded")} == {
        "Succeeded": 0, "Failed": 1, "Superseded": 0,
    }  # fmt: skip


def test_a_job_that_is_over_needs_no_master() -> None:
    registry = CollectorRegistry()
    counters = Counters(registry)
    counters.note_phase(job(status={"phase": "Running"}), NOW)
    labels = {"job_namespace": "ml", "job_name": "digits"}
    for ready, shown in ((True, 1), (False, 0), (None, None)):
        counters.note_look(job().key, ready, {})
        assert registry.get_sample_value("elasticjob_job_master_ready", labels) == shown


def transition(type_: str, seconds: float) -> dict[str, Any]:
    """Return a condition of a status."""
    since = at(NOW + timedelta(seconds=seconds))
    return {"type": type_, "status": "True", "reason": "Any", "message": "", "lastTransitionTime": since}


def of_jobs(registry: CollectorRegistry) -> list[dict[str, str]]:
    """Return the labels of all series of jobs."""
    samples = (sample for family in registry.collect() for sample in family.samples)
    return [dict(sample.labels) for sample in samples if OF_JOBS & set(sample.labels)]


def names_of(*parts: str) -> set[str]:
    """Return the names of the metrics of parts."""
    return {each.name for part in parts for each in METRICS[part]}


def name_of(family: Any) -> str:
    """Return the name of a metric as the page has it."""
    return f"{family.name}_total" if family.type == "counter" else family.name


def served(registry: CollectorRegistry) -> set[str]:
    """Return the names of a program's metrics but those of Python's process."""
    return {name_of(family) for family in registry.collect() if not family.name.startswith("process_")}


def filled(part: str) -> CollectorRegistry:
    """Return a registry with a series of each metric of a part."""
    listing = Listing()
    for register in PARTS[part]:
        register(listing)
    for metric in listing.collectors:
        if isinstance(metric, MetricWrapperBase) and (names := labels_of(metric)):
            metric.labels(*("x" for _ in names))
    return listing


def master() -> CollectorRegistry:
    """Return the metrics of a master whose job trains."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(JobCollector(trained(), Trouble(failed={"timeouts": 1.0})))
    return registry


def trained() -> Job:
    """Return a job whose node has told all that a node may tell."""
    game = played("node-0", replicas=1, restart_count=3)
    game.see(pod("node-0", resource={"cpu": "2", "memory": "1Gi"}))
    worker = WorkerState(local_rank=0, doing=Doing.COMPUTING, idle=0.1, usual=0.5, samples=30.0)
    gpus = Gpus(count=2, utilization=0.5, memory=3, memory_total=80)
    usage, kept = Usage(cpu=1.5, memory=64, peak=96, gpus=gpus), Kept(stored=3, in_memory=4, seconds=2.0)
    told: dict[str, Any] = {"usage": usage, "workers": (worker,), "kept": kept}
    for step in (1, 2):
        game.wait(1, "node-0")
        progress = Progress(step=step, samples=8 * step, loss=0.5)
        game.ask(Report(node="node-0", incarnation="node-0-life", round=1, progress=progress, **told))
    return goodput.close(game.job, game.now)


@asynccontextmanager
async def apart() -> AsyncIterator[tuple[Client, aiohttp.ClientSession]]:
    """Return a client of no cluster, and a session."""
    async with Client(Config("http://127.0.0.1:1")) as client, aiohttp.ClientSession() as session:
        yield client, session
