"""The dashboard of the operator and of di-server: passes, queues, webhooks, API server, processes."""

from __future__ import annotations

from typing import Final

from hack.dashboards.panels import AMBER, RED, Board, Query, Row, Unit, choice, graph, number
from hack.dashboards.program import HERE, api, passes, process, quantile, rate, summary

FOUND: Final = "elasticjob_time_to_first_step_seconds_count"
"""A series that each operator has, and that no other program has."""
WEBHOOK: Final = "controller_runtime_webhook"
CALLS: Final = "elasticjob_di_server_request_seconds"
CALLED: Final = '{namespace=~"$namespace"}'

NOW: Final = summary(
    number(
        "Failed passes",
        "Within five minutes.",
        f"sum(increase(controller_runtime_reconcile_errors_total{{{HERE}}}[5m]))",
        steps={1: AMBER, 20: RED},
    ),
    number(
        "Queue",
        "Objects that wait for a pass.",
        f"sum(workqueue_depth{{{HERE}}})",
        steps={100: AMBER, 1000: RED},
    ),
)
WEBHOOKS: Final = Row(
    "Webhooks",
    (
        graph(
            "Admission requests",
            "Requests a second, by webhook and HTTP code of the answer.",
            Query(f"sum by (webhook, code) ({rate(f'{WEBHOOK}_requests_total')})", "{{webhook}} {{code}}"),
            unit=Unit.PER_SECOND,
        ),
        graph(
            "Time of an admission",
            "99 of 100 answers take less, by webhook: kubectl apply waits for it.",
            Query(quantile(0.99, f"{WEBHOOK}_latency_seconds", "webhook"), "{{webhook}}"),
            unit=Unit.SECONDS,
        ),
        graph(
            "Admissions under way",
            "Requests that wait for an answer now.",
            Query(f"sum by (webhook) ({WEBHOOK}_requests_in_flight{{{HERE}}})", "{{webhook}}"),
        ),
    ),
)
DI_SERVER: Final = Row(
    "di-server",
    (
        graph(
            "Calls",
            "Calls of DI-engine's processes in a second, by HTTP code.",
            Query(
                f"sum by (call, code) (rate({CALLS}_count{CALLED}[$__rate_interval]))", "{{call}} {{code}}"
            ),
            unit=Unit.PER_SECOND,
            width=12,
        ),
        graph(
            "Time of a call",
            "99 of 100 calls take less; those that wait for pods are the slow ones.",
            Query(
                f"histogram_quantile(0.99, sum by (le, call) (rate({CALLS}_bucket{CALLED}"
                "[$__rate_interval])))",
                "{{call}}",
            ),
            unit=Unit.SECONDS,
            width=12,
        ),
    ),
)

BOARD: Final = Board(
    "operator",
    "Operator",
    "Whether the operator leads, keeps up, and is answered by the API server; its webhooks; di-server.",
    (
        choice("namespace", "Namespace", f"label_values({FOUND}, namespace)", several=True),
        choice("job", "Scrape job", f'label_values({FOUND}{{namespace=~"$namespace"}}, job)', several=True),
    ),
    (NOW, passes(), WEBHOOKS, api(), DI_SERVER, process()),
)
