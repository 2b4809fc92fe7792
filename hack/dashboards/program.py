"""Rows that the dashboards of operator and Brain share: what any controller process shows."""

from __future__ import annotations

from typing import Final

from hack.dashboards.panels import AMBER, RED, Panel, Query, Row, Unit, graph, number

HERE: Final = 'namespace=~"$namespace",job=~"$job"'
"""`job` is the name of the scrape job here: these programs' series have no such label of their own."""
STALE: Final = 300.0
"""Seconds after which a cache that has not heard from the API server is shown in red."""


def rate(name: str, more: str = "") -> str:
    """Return how fast a counter grows."""
    return f"rate({name}{{{HERE}{more}}}[$__rate_interval])"


def quantile(share: float, histogram: str, by: str = "") -> str:
    """Return the time below which a share of observations is."""
    labels = f"le, {by}" if by else "le"
    return f"histogram_quantile({share}, sum by ({labels}) ({rate(f'{histogram}_bucket')}))"


def summary(*more: Panel) -> Row:
    """Return the numbers at the top: replicas, leader, errors, caches, and `more` between them."""
    return Row(
        "Now",
        (
            number(
                "Replicas",
                "Processes that answer a scrape.",
                f"sum(up{{{HERE}}})",
                base=RED,
                steps={1: "green"},
            ),
            number(
                "Leaders",
                "Processes that hold the lease: one, or for seconds none.",
                f"sum(leader_election_master_status{{{HERE}}}) or vector(1)",
                base=RED,
                steps={1: "green", 2: RED},
            ),
            *more,
            number(
                "Oldest cache",
                "Time since a cache last heard from the API server.",
                f"max(elasticjob_kube_cache_staleness_seconds{{{HERE}}})",
                Unit.SECONDS,
                steps={STALE / 5: AMBER, STALE: RED},
            ),
            number(
                "Lateness",
                "How late the event loop wakes, in 99 of 100 cases.",
                quantile(0.99, "elasticjob_kube_event_loop_lag_seconds"),
                Unit.SECONDS,
                steps={0.1: AMBER, 1.0: RED},
            ),
        ),
    )


def passes() -> Row:
    """Return how its controllers and their queues do."""
    run, queue = "controller_runtime_reconcile", "workqueue"
    waits = quantile(0.99, f"{queue}_queue_duration_seconds", "controller")
    return Row(
        "Passes over objects",
        (
            graph(
                "Passes by result",
                "Passes a second.",
                Query(f"sum by (result) ({rate(f'{run}_total')})", "{{result}}"),
                stacked=True,
                unit=Unit.PER_SECOND,
            ),
            graph(
                "Errors",
                "Passes a second that failed, by controller, that gave up, and that broke unexpectedly.",
                Query(f"sum by (controller) ({rate(f'{run}_errors_total')})", "{{controller}}"),
                Query(f"sum({rate('controller_runtime_terminal_reconcile_errors_total')})", "gave up"),
                Query(f"sum({rate(f'{run}_panics_total')})", "broke"),
                unit=Unit.PER_SECOND,
            ),
            graph(
                "Time of a pass",
                "99 of 100 passes take less, by controller.",
                Query(quantile(0.99, f"{run}_time_seconds", "controller"), "{{controller}}"),
                unit=Unit.SECONDS,
            ),
            graph(
                "Queue",
                "Objects that wait for a pass.",
                Query(f"sum by (controller) ({queue}_depth{{{HERE}}})", "{{controller}}"),
                stacked=True,
            ),
            graph(
                "Wait in the queue",
                "99 of 100 objects wait less, by controller.",
                Query(waits, "{{controller}}"),
                unit=Unit.SECONDS,
            ),
            graph(
                "Longest pass under way",
                "A line that rises is a pass that hangs.",
                Query(
                    f"max by (controller) ({queue}_longest_running_processor_seconds{{{HERE}}})",
                    "{{controller}}",
                ),
                unit=Unit.SECONDS,
            ),
        ),
    )


def api() -> Row:
    """Return how it gets on with the API server."""
    kube = "elasticjob_kube"
    return Row(
        "API server",
        (
            graph(
                "Requests by code",
                "Requests a second to the API server; 409 is a conflict, and the pass runs again.",
                Query(f"sum by (code) ({rate('rest_client_requests_total')})", "{{code}}"),
                stacked=True,
                unit=Unit.PER_SECOND,
            ),
            graph(
                "Age of caches",
                "Time since each cache last heard from the API server.",
                Query(f"max by (kind) ({kube}_cache_staleness_seconds{{{HERE}}})", "{{kind}}"),
                unit=Unit.SECONDS,
            ),
            graph(
                "Objects in caches",
                "By kind.",
                Query(f"max by (kind) ({kube}_cache_objects{{{HERE}}})", "{{kind}}"),
                stacked=True,
            ),
            graph(
                "Watches opened again",
                "By cause, in a second.",
                Query(f"sum by (cause) ({rate(f'{kube}_watch_reconnects_total')})", "{{cause}}"),
                unit=Unit.PER_SECOND,
            ),
            graph(
                "Events",
                "Kubernetes Events a second, by what became of them.",
                Query(f"sum by (fate) ({rate(f'{kube}_events_total')})", "{{fate}}"),
                unit=Unit.PER_SECOND,
            ),
            graph(
                "Bytes in caches",
                "Bytes of the objects that are held, by kind.",
                Query(f"max by (kind) ({kube}_cache_bytes{{{HERE}}})", "{{kind}}"),
                stacked=True,
                unit=Unit.BYTES,
            ),
        ),
    )


def process() -> Row:
    """Return what the processes themselves use."""
    return Row(
        "Processes",
        (
            graph(
                "Cores",
                "Used by each process.",
                Query(rate("process_cpu_seconds_total"), "{{instance}}"),
                unit=Unit.CORES,
            ),
            graph(
                "Memory",
                "Resident, of each process.",
                Query(f"process_resident_memory_bytes{{{HERE}}}", "{{instance}}"),
                unit=Unit.BYTES,
            ),
            graph(
                "Tasks",
                "Tasks of each event loop: a line that only rises is a leak.",
                Query(f"elasticjob_kube_tasks{{{HERE}}}", "{{instance}}"),
            ),
        ),
    )
