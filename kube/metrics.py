"""The metrics of a controller process, under controller-runtime's names, in the registry that is passed in.

The meters below are what its busy parts hold: to find a series by its labels takes ten times as long as to
count in it, so each is found once.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
RESULTS = ("error", "requeue", "requeue_after", "success")


class Metrics:
    """All collectors; build one per process."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or CollectorRegistry()
        counter, gauge, seconds = self._counter, self._gauge, self._seconds
        c, q, k, w = ("controller",), ("name", "controller"), ("kind",), ("webhook",)

        self.reconciles = counter(
            "controller_runtime_reconcile", "Runs of a controller, by result.", (*c, "result")
        )
        self.reconcile_errors = counter(
            "controller_runtime_reconcile_errors", "Runs of a controller that failed.", c
        )
        self.terminal_errors = counter(
            "controller_runtime_terminal_reconcile_errors", "Runs of a controller that gave up.", c
        )
        self.panics = counter(
            "controller_runtime_reconcile_panics", "Runs of a controller that broke unexpectedly.", c
        )
        self.timeouts = counter(
            "controller_runtime_reconcile_timeouts", "Runs of a controller that took too long.", c
        )
        self.reconcile_seconds = seconds(
            "controller_runtime_reconcile_time_seconds", "Time of a run of a controller.", c
        )
        self.max_concurrent = gauge(
            "controller_runtime_max_concurrent_reconciles",
            "Runs of a controller that are allowed at the same time.",
            c,
        )
        self.active_workers = gauge(
            "controller_runtime_active_workers", "Runs of a controller that go on now.", c
        )
        self.gate_timeouts = counter(
            "elasticjob_kube_gate_timeouts", "Runs that waited in vain to see their own writes.", c
        )

        self.failed_passes = counter(
            "elasticjob_kube_failed_passes", "Passes of a loop over one object that failed.", ("loop",)
        )

        self.queue_depth = gauge("workqueue_depth", "Keys that wait for a run.", (*q, "priority"))
        self.queue_adds = counter("workqueue_adds", "Keys that were put into the queue.", q)
        self.queue_retries = counter("workqueue_retries", "Keys that were put off after an error.", q)
        self.queue_seconds = seconds("workqueue_queue_duration_seconds", "Time of a key in the queue.", q)
        self.work_seconds = seconds("workqueue_work_duration_seconds", "Time of a run for a key.", q)
        self.unfinished = gauge("workqueue_unfinished_work_seconds", "Time of all runs that go on now.", q)
        self.longest = gauge(
            "workqueue_longest_running_processor_seconds", "Time of the longest run that goes on now.", q
        )

        self.requests = counter(
            "rest_client_requests",
            "Requests to the API server, by answer.",
            ("code", "method", "host"),
        )

        self.leader = gauge("leader_election_master_status", "Whether this process leads, 1 or 0.", ("name",))
        self.leader_slow_path = counter(
            "leader_election_slowpath", "Looks of a leader at its own lease.", ("name",)
        )

        self.webhook_requests = counter(
            "controller_runtime_webhook_requests",
            "Admission requests, by answer.",
            (*w, "code"),
        )
        self.webhook_in_flight = gauge(
            "controller_runtime_webhook_requests_in_flight",
            "Admission requests that are being answered now.",
            w,
        )
        self.webhook_seconds = seconds(
            "controller_runtime_webhook_latency_seconds", "Time of an admission request.", w
        )
        self.certificate_reads = counter("certwatcher_read_certificate", "Readings of certificate files.")
        self.certificate_errors = counter(
            "certwatcher_read_certificate_errors", "Readings of certificate files that failed."
        )
        self.certificate_expires = gauge(
            "elasticjob_kube_webhook_certificate_expiry_timestamp_seconds",
            "When the certificate that the webhooks serve expires.",
            ("configuration",),
        )

        self.cache_objects = gauge("elasticjob_kube_cache_objects", "Objects in the cache.", k)
        self.cache_bytes = gauge("elasticjob_kube_cache_bytes", "Size of the objects in the cache.", k)
        self.cache_age = gauge(
            "elasticjob_kube_cache_staleness_seconds",
            "Time since the API server was last heard about a kind.",
            k,
        )
        self.watch_reconnects = counter(
            "elasticjob_kube_watch_reconnects",
            "Lists and watches that were asked for again: failed, refused, silent or ended.",
            (*k, "cause"),
        )
        self.undecodable = counter(
            "elasticjob_kube_undecodable_objects", "Objects whose metadata cannot be read.", k
        )
        self.events = counter(
            "elasticjob_kube_events", "Kubernetes Events, by what became of them.", ("fate",)
        )
        self.loop_lag = seconds(
            "elasticjob_kube_event_loop_lag_seconds", "How late the event loop wakes a task."
        )
        self.tasks = gauge("elasticjob_kube_tasks", "Tasks of the event loop.")
        if registry is None:  # a registry that is handed in may have it
            ProcessCollector(registry=self.registry)

    def _counter(self, name: str, about: str, labels: Sequence[str] = ()) -> Counter:
        return Counter(name, about, labels, registry=self.registry)

    def _gauge(self, name: str, about: str, labels: Sequence[str] = ()) -> Gauge:
        return Gauge(name, about, labels, registry=self.registry)

    def _seconds(self, name: str, about: str, labels: Sequence[str] = ()) -> Histogram:
        return Histogram(name, about, labels, registry=self.registry, buckets=SECONDS)


class RunMeter:
    """Metrics of a controller's runs. All series begin at 0, so that the first failure has a rate."""

    def __init__(self, metrics: Metrics, name: str, workers: int) -> None:
        reconciles = metrics.reconciles
        self._results = {result: reconciles.labels(controller=name, result=result) for result in RESULTS}
        self._seconds = metrics.reconcile_seconds.labels(controller=name)
        self._errors = metrics.reconcile_errors.labels(controller=name)
        self.terminal_errors = metrics.terminal_errors.labels(controller=name)
        self.panics = metrics.panics.labels(controller=name)
        self.timeouts = metrics.timeouts.labels(controller=name)
        self.gate_timeouts = metrics.gate_timeouts.labels(controller=name)
        metrics.max_concurrent.labels(controller=name).set(workers)

    def end(self, seconds: float) -> None:
        self._seconds.observe(seconds)

    def settle(self, result: str) -> None:
        self._results[result].inc()
        if result == "error":
            self._errors.inc()


class RequestMeter:
    """The metrics of a client's requests to one host."""

    def __init__(self, metrics: Metrics, host: str) -> None:
        self._answers = cache(
            lambda code, method: metrics.requests.labels(code=code, method=method, host=host)
        )

    def count(self, code: str, method: str) -> None:
        self._answers(code, method).inc()


class QueueMeter:
    """The metrics of a queue."""

    def __init__(self, metrics: Metrics, name: str) -> None:
        labels = {"name": name, "controller": name}
        self._depth = cache(lambda priority: metrics.queue_depth.labels(**labels, priority=str(priority)))
        self._adds = metrics.queue_adds.labels(**labels)
        self._retries = metrics.queue_retries.labels(**labels)
        self._waited = metrics.queue_seconds.labels(**labels)
        self._worked = metrics.work_seconds.labels(**labels)

    def add(self, priority: int) -> None:
        self._adds.inc()
        self._depth(priority).inc()

    def move(self, old: int, new: int) -> None:
        self._depth(old).dec()
        self._depth(new).inc()

    def take(self, priority: int, waited: float) -> None:
        self._depth(priority).dec()
        self._waited.observe(waited)

    def done(self, seconds: float) -> None:
        self._worked.observe(seconds)

    def retry(self) -> None:
        self._retries.inc()
