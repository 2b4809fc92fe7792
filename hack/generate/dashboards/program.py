"""Rows that the dashboards of operator and Brain share: what any controller process shows.

Other programs serve metrics of these names, too: the monitors in config/prometheus label ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import dashboard

from hack.generate.dashboards.panels import AMBER, RED, Panel, Query, Row, Unit, choice, graph, number

STALE: Final = 300.0
"""Seconds after which a cache that has not heard from the API server is shown in red."""


@dataclass(frozen=True)
class Program:
    """A program, by the label `component` that its monitor gives it."""

    component: str

    @property
    def here(self) -> str:
        """The labels of the series that are chosen."""
        return f'component="{self.component}",namespace=~"$namespace",job=~"$job"'

    def rate(self, name: str, more: str = "") -> str:
        """Return how fast a counter grows."""
        return f"rate({name}{{{self.here}{more}}}[$__rate_interval])"

    def quantile(self, share: float, histogram: str, by: str = "") -> str:
        """Return the time below which a share of observations is."""
        labels = f"le, {by}" if by else "le"
        return f"histogram_quantile({share}, sum by ({labels}) ({self.rate(f'{histogram}_bucket')}))"

    def variables(self) -> tuple[Builder[dashboard.VariableModel], ...]:
        """Return the choice of namespaces and of scrape jobs."""
        return (
            choice(
                "namespace",
                "Namespace",
                f'label_values(up{{component="{self.component}"}}, namespace)',
                several=True,
            ),
            choice(
                "job",
                "Scrape job",
                f'label_values(up{{component="{self.component}",namespace=~"$namespace"}}, job)',
                several=True,
            ),
        )


def summary(program: Program, *more: Panel) -> Row:
    """Return the numbers at the top: replicas, leader, errors, caches, and `more` between them."""
    return Row(
        "Now",
        (
            number(
                "Replicas",
                "Processes that answer a scrape.",
                f"sum(up{{{program.here}}})",
                base=RED,
                steps={1: "green"},
            ),
            number(
                "Leaders",
                "Processes that hold the lease: one, or for seconds none.",
                f"sum(leader_election_master_status{{{program.here}}}) or vector(1)",
                base=RED,
                steps={1: "green", 2: RED},
            ),
            *more,
            number(
                "Oldest cache",
                "Time since a cache last heard from the API server.",
                f"max(elasticjob_kube_cache_staleness_seconds{{{program.here}}})",
                Unit.SECONDS,
                steps={STALE / 5: AMBER, STALE: RED},
            ),
            number(
                "Lateness",
                "How late the event loop wakes, in 99 of 100 cases.",
                program.quantile(0.99, "elasticjob_kube_event_loop_lag_seconds"),
                Unit.SECONDS,
                steps={0.1: AMBER, 1.0: RED},
            ),
        ),
    )


def passes(program: Program) -> Row:
    """Return how its controllers and their queues do."""
    run, queue = "controller_runtime_reconcile", "workqueue"
    waits = program.quantile(0.99, f"{queue}_queue_duration_seconds", "controller")
    return Row(
        "Passes over objects",
        (
            graph(
                "Passes by result",
                "Passes a second.",
                Query(f"sum by (result) ({program.rate(f'{run}_total')})", "{{result}}"),
                stacked=True,
                unit=Unit.PER_SECOND,
            ),
            graph(
                "Errors",
                "Passes a second that failed, by controller, that gave up, and that broke unexpectedly.",
                Query(f"sum by (controller) ({program.rate(f'{run}_errors_total')})", "{{controller}}"),
                Query(
                    f"sum({program.rate('controller_runtime_terminal_reconcile_errors_total')})", "gave up"
                ),
                Query(f"sum({program.rate(f'{run}_panics_total')})", "broke"),
                unit=Unit.PER_SECOND,
            ),
            graph(
                "Time of a pass",
                "99 of 100 passes take less, by controller.",
                Query(program.quantile(0.99, f"{run}_time_seconds", "controller"), "{{controller}}"),
                unit=Unit.SECONDS,
            ),
            graph(
                "Queue",
                "Objects that wait for a pass.",
                Query(f"sum by (controller) ({queue}_depth{{{program.here}}})", "{{controller}}"),
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
                    f"max by (controller) ({queue}_longest_running_processor_seconds{{{program.here}}})",
                    "{{controller}}",
                ),
                unit=Unit.SECONDS,
            ),
        ),
    )


def api(program: Program, *more: Panel) -> Row:
    """Return how it gets on with the API server, and `more`."""
    kube = "elasticjob_kube"
    return Row(
        "API server",
        (
            graph(
                "Requests by code",
                "Requests a second to the API server; 409 is a conflict, and the pass runs again.",
                Query(f"sum by (code) ({program.rate('rest_client_requests_total')})", "{{code}}"),
                stacked=True,
                unit=Unit.PER_SECOND,
            ),
            graph(
                "Age of caches",
                "Time since each cache last heard from the API server.",
                Query(f"max by (kind) ({kube}_cache_staleness_seconds{{{program.here}}})", "{{kind}}"),
                unit=Unit.SECONDS,
            ),
            graph(
                "Objects in caches",
                "By kind.",
                Query(f"max by (kind) ({kube}_cache_objects{{{program.here}}})", "{{kind}}"),
                stacked=True,
            ),
            graph(
                "Watches opened again",
                "By cause, in a second.",
                Query(f"sum by (cause) ({program.rate(f'{kube}_watch_reconnects_total')})", "{{cause}}"),
                unit=Unit.PER_SECOND,
                width=8 if more else 12,
            ),
            graph(
                "Bytes in caches",
                "Bytes of the objects that are held, by kind.",
                Query(f"max by (kind) ({kube}_cache_bytes{{{program.here}}})", "{{kind}}"),
                stacked=True,
                unit=Unit.BYTES,
                width=8 if more else 12,
            ),
            *more,
        ),
    )


def process(program: Program) -> Row:
    """Return what the processes themselves use."""
    return Row(
        "Processes",
        (
            graph(
                "Cores",
                "Used by each process.",
                Query(program.rate("process_cpu_seconds_total"), "{{instance}}"),
                unit=Unit.CORES,
                width=6,
            ),
            graph(
                "Memory",
                "Resident, of each process.",
                Query(f"process_resident_memory_bytes{{{program.here}}}", "{{instance}}"),
                unit=Unit.BYTES,
                width=6,
            ),
            graph(
                "Tasks",
                "Tasks of each event loop: a line that only rises is a leak.",
                Query(f"elasticjob_kube_tasks{{{program.here}}}", "{{instance}}"),
                width=6,
            ),
            graph(
                "Lateness",
                "How late the event loop wakes a task, in half and in 99 of 100 cases: it rises with load.",
                *(
                    Query(program.quantile(share, "elasticjob_kube_event_loop_lag_seconds"), name)
                    for share, name in ((0.5, "half"), (0.99, "99 of 100"))
                ),
                unit=Unit.SECONDS,
                width=6,
            ),
        ),
    )
