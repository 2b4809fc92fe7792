"""The dashboard of the operator and of di-server: passes, queues, webhooks, API server, processes."""

from __future__ import annotations

from typing import Final

from hack.generate.dashboards.panels import AMBER, GRAPH, GREEN, RED, Board, Query, Row, Unit, graph, number
from hack.generate.dashboards.program import Program, api, passes, process, summary

PROGRAM: Final = Program("elasticjob-operator")
WEBHOOK: Final = "controller_runtime_webhook"
CALLS: Final = "elasticjob_di_server_request_seconds"
CALLED: Final = '{namespace=~"$namespace"}'

NOW: Final = summary(
    PROGRAM,
    number(
        "Failed passes",
        "Within five minutes.",
        f"sum(increase(controller_runtime_reconcile_errors_total{{{PROGRAM.here}}}[5m]))",
        steps={1: AMBER, 20: RED},
    ),
    number(
        "Queue",
        "Objects that wait for a pass.",
        f"sum(workqueue_depth{{{PROGRAM.here}}})",
        steps={100: AMBER, 1000: RED},
    ),
)
EVENTS: Final = graph(
    "Events",
    "Kubernetes Events a second, by what became of them.",
    Query(f"sum by (fate) ({PROGRAM.rate('elasticjob_kube_events_total')})", "{{fate}}"),
    unit=Unit.PER_SECOND,
)
WEBHOOKS: Final = Row(
    "Webhooks",
    (
        graph(
            "Admission requests",
            "Requests a second, by webhook and HTTP code of the answer.",
            Query(
                f"sum by (webhook, code) ({PROGRAM.rate(f'{WEBHOOK}_requests_total')})",
                "{{webhook}} {{code}}",
            ),
            unit=Unit.PER_SECOND,
        ),
        graph(
            "Time of an admission",
            "99 of 100 answers take less, by webhook: kubectl apply waits for it.",
            Query(PROGRAM.quantile(0.99, f"{WEBHOOK}_latency_seconds", "webhook"), "{{webhook}}"),
            unit=Unit.SECONDS,
        ),
        graph(
            "Admissions under way",
            "Requests that wait for an answer now.",
            Query(f"sum({WEBHOOK}_requests_in_flight{{{PROGRAM.here}}})", "under way"),
            width=4,
        ),
        number(
            "Certificate",
            "Time until the certificate of the webhooks expires: the operator renews its own in time.",
            f"min(elasticjob_kube_webhook_certificate_expiry_timestamp_seconds{{{PROGRAM.here}}}) - time()",
            Unit.SECONDS,
            base=RED,
            steps={86400: GREEN},
            height=GRAPH,
        ),
    ),
)
DI_SERVER: Final = Row(
    "di-server",
    (
        graph(
            "Calls",
            "Calls of coordinators in a second, by HTTP code.",
            Query(
                f"sum by (call, code) (rate({CALLS}_count{CALLED}[$__rate_interval]))", "{{call}} {{code}}"
            ),
            unit=Unit.PER_SECOND,
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
        ),
        graph(
            "Failed calls",
            "Calls that could not be carried out, in a second, by what failed: the cluster or di-server.",
            Query(
                f"sum by (reason) (rate(elasticjob_di_server_failed_calls_total{CALLED}[$__rate_interval]))",
                "{{reason}}",
            ),
            unit=Unit.PER_SECOND,
        ),
    ),
)

BOARD: Final = Board(
    "operator",
    "Operator",
    "Whether the operator leads, keeps up, and is answered by the API server; its webhooks; di-server.",
    PROGRAM.variables(),
    (NOW, passes(PROGRAM), WEBHOOKS, api(PROGRAM, EVENTS), DI_SERVER, process(PROGRAM)),
)
