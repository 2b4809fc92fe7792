"""The metrics of a controller process, under controller-runtime's names, in a registry that is handed in."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
RESULTS = ("error", "requeue", "requeue_after", "success")


class Metrics:
    """All collectors; build one per process."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = r = registry or CollectorRegistry()
        ctrl, queue = ("controller",), ("name", "controller")

        self.reconciles = Counter(
            "controller_runtime_reconcile", "Runs by result", ("controller", "result"), registry=r
        )
        self.reconcile_errors = Counter(
            "controller_runtime_reconcile_errors", "Runs that failed", ctrl, registry=r
        )
        self.terminal_errors = Counter(
            "controller_runtime_terminal_reconcile_errors", "Runs that gave up", ctrl, registry=r
        )
        self.panics = Counter(
            "controller_runtime_reconcile_panics",
            "Runs that ended in an unexpected exception",
            ctrl,
            registry=r,
        )
        self.timeouts = Counter(
            "controller_runtime_reconcile_timeouts", "Runs that took too long", ctrl, registry=r
        )
        self.reconcile_seconds = Histogram(
            "controller_runtime_reconcile_time_seconds", "Length of a run", ctrl, registry=r, buckets=SECONDS
        )
        self.max_concurrent = Gauge(
            "controller_runtime_max_concurrent_reconciles", "Workers allowed", ctrl, registry=r
        )
        self.active_workers = Gauge("controller_runtime_active_workers", "Workers busy", ctrl, registry=r)
        self.gate_timeouts = Counter(
            "elasticjob_kube_gate_timeouts",
            "Runs that did not wait longer to see their own writes",
            ctrl,
            registry=r,
        )

        self.queue_depth = Gauge("workqueue_depth", "Keys ready", (*queue, "priority"), registry=r)
        self.queue_adds = Counter("workqueue_adds", "Keys that became ready", queue, registry=r)
        self.queue_retries = Counter("workqueue_retries", "Keys put off after an error", queue, registry=r)
        self.queue_seconds = Histogram(
            "workqueue_queue_duration_seconds", "Time in the queue", queue, registry=r, buckets=SECONDS
        )
        self.work_seconds = Histogram(
            "workqueue_work_duration_seconds", "Time in work", queue, registry=r, buckets=SECONDS
        )
        self.unfinished = Gauge(
            "workqueue_unfinished_work_seconds", "Time of all unfinished work", queue, registry=r
        )
        self.longest = Gauge(
            "workqueue_longest_running_processor_seconds",
            "Time of the longest unfinished work",
            queue,
            registry=r,
        )

        self.requests = Counter(
            "rest_client_requests", "Requests to the API server", ("code", "method", "host"), registry=r
        )

        self.webhook_requests = Counter(
            "controller_runtime_webhook_requests", "Admission requests", ("webhook", "code"), registry=r
        )
        self.webhook_in_flight = Gauge(
            "controller_runtime_webhook_requests_in_flight",
            "Admission requests now",
            ("webhook",),
            registry=r,
        )
        self.webhook_seconds = Histogram(
            "controller_runtime_webhook_latency_seconds",
            "Admission time",
            ("webhook",),
            registry=r,
            buckets=SECONDS,
        )

        kind = ("kind",)
        self.cache_objects = Gauge("elasticjob_kube_cache_objects", "Objects held", kind, registry=r)
        self.cache_bytes = Gauge("elasticjob_kube_cache_bytes", "Bytes of objects held", kind, registry=r)
        self.cache_age = Gauge(
            "elasticjob_kube_cache_staleness_seconds",
            "Time since the server was last heard",
            kind,
            registry=r,
        )
        self.watch_reconnects = Counter(
            "elasticjob_kube_watch_reconnects", "Watches opened again", ("kind", "cause"), registry=r
        )
        self.undecodable = Counter(
            "elasticjob_kube_undecodable_objects", "Objects without usable metadata", kind, registry=r
        )
        self.events = Counter("elasticjob_kube_events", "Kubernetes Events by fate", ("fate",), registry=r)
        self.loop_lag = Histogram(
            "elasticjob_kube_event_loop_lag_seconds",
            "How late the event loop wakes",
            registry=r,
            buckets=SECONDS,
        )

    def start_controller(self, name: str, workers: int) -> None:
        """Begin all series of a controller at 0, so that rates exist from the first failure on."""
        for result in RESULTS:
            self.reconciles.labels(controller=name, result=result)
        for counter in (
            self.reconcile_errors,
            self.terminal_errors,
            self.panics,
            self.timeouts,
            self.gate_timeouts,
        ):
            counter.labels(controller=name)
        for counter in (self.queue_adds, self.queue_retries):
            counter.labels(name=name, controller=name)
        self.max_concurrent.labels(controller=name).set(workers)
        self.active_workers.labels(controller=name).set(0)


class QueueMeter:
    """What a queue tells of itself."""

    def __init__(self, metrics: Metrics, name: str) -> None:
        labels = {"name": name, "controller": name}
        self._labels = labels
        self._depth = metrics.queue_depth
        self._adds = metrics.queue_adds.labels(**labels)
        self._retries = metrics.queue_retries.labels(**labels)
        self._waited = metrics.queue_seconds.labels(**labels)
        self._worked = metrics.work_seconds.labels(**labels)

    def added(self, priority: int) -> None:
        self._adds.inc()
        self._depth.labels(**self._labels, priority=str(priority)).inc()

    def moved(self, old: int, new: int) -> None:
        self._depth.labels(**self._labels, priority=str(old)).dec()
        self._depth.labels(**self._labels, priority=str(new)).inc()

    def taken(self, priority: int, waited: float) -> None:
        self._depth.labels(**self._labels, priority=str(priority)).dec()
        self._waited.observe(waited)

    def done(self, seconds: float) -> None:
        self._worked.observe(seconds)

    def retried(self) -> None:
        self._retries.inc()
