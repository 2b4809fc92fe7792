"""The dashboard of all jobs: how many there are, how well they train, where their time goes."""

from __future__ import annotations

from typing import Final

from hack.generate.dashboards.panels import (
    AMBER,
    BLUE,
    GREEN,
    RED,
    Board,
    Column,
    Panel,
    Query,
    Row,
    Unit,
    choice,
    graph,
    jobs_table,
    number,
)

HERE: Final = 'namespace=~"$namespace"'
OWNED: Final = 'job_namespace=~"$namespace"'
"""The operator's series have the namespace of a job under this name: their own is the operator's."""
BY_JOB: Final = "max by (namespace, job)"
PRODUCTIVE: Final = f"rate(elasticjob_productive_seconds_total{{{HERE}}}[$__rate_interval])"
LOST: Final = f"rate(elasticjob_badput_seconds_total{{{HERE}}}[$__rate_interval])"


def jobs_in(phase: str) -> str:
    """Return the number of jobs that the operator in charge counts in a phase."""
    return f'sum(elasticjob_jobs{{{OWNED},phase="{phase}"}}) or vector(0)'


def ended(how: str) -> str:
    """Return how many jobs ended so in the last hour."""
    return f"sum(increase(training_operator_jobs_{how}_total{{{OWNED}}}[1h])) or vector(0)"


NOW: Final = Row(
    "Now",
    (
        number("Running", "Jobs that train, or are about to.", jobs_in("Running"), base=BLUE),
        number("Pending", "Jobs that wait for pods.", jobs_in("Pending"), base=BLUE, steps={1: AMBER}),
        number("Failed", "Jobs that failed and were not deleted since.", jobs_in("Failed"), steps={1: RED}),
        number("Workers", "Workers in a world now.", f"sum(elasticjob_world_size{{{HERE}}})", base=BLUE),
        number(
            "Goodput",
            "Share of the workers' time in steps that count.",
            f"sum({PRODUCTIVE}) / (sum({PRODUCTIVE}) + sum({LOST}))",
            Unit.RATIO,
            base=RED,
            steps={0.5: AMBER, 0.8: GREEN},
        ),
        number(
            "Alerts",
            "Alerts of elasticjob that fire.",
            'count(ALERTS{alertname=~"ElasticJob.*",alertstate="firing"}) or vector(0)',
            steps={1: RED},
        ),
    ),
)
JOBS: Final = Row(
    "Jobs",
    (
        jobs_table(
            "Jobs that have a master",
            "A click on a job's name opens its own dashboard.",
            Column("Step", f"{BY_JOB} (elasticjob_step{{{HERE}}})"),
            Column("Steps a second", f"{BY_JOB} (elasticjob_steps_per_second{{{HERE}}})"),
            Column("Workers", f"{BY_JOB} (elasticjob_world_size{{{HERE}}})"),
            Column("Goodput", f"{BY_JOB} (elasticjob_goodput_ratio{{{HERE}}})", Unit.RATIO),
            Column("Restarts", f"{BY_JOB} (elasticjob_worker_restarts_total{{{HERE}}})"),
            Column("Slow workers", f"{BY_JOB} (elasticjob_stragglers{{{HERE}}})"),
            Column("Checkpoint failing", f"{BY_JOB} (elasticjob_checkpoint_failing{{{HERE}}})"),
        ),
        graph(
            "Jobs by phase",
            "What the operator in charge counts.",
            Query(f"sum by (phase) (elasticjob_jobs{{{OWNED}}})", "{{phase}}"),
            stacked=True,
        ),
        graph(
            "Jobs that ended in the last hour",
            "Succeeded and failed, as the Kubeflow training operator counts them.",
            Query(ended("successful"), "succeeded"),
            Query(ended("failed"), "failed"),
        ),
        graph(
            "From creation to the first step",
            "Half of the jobs of the last hour began faster than the lower line, nine in ten than the upper.",
            *(
                Query(
                    f"histogram_quantile({share}, sum by (le) (rate("
                    "elasticjob_time_to_first_step_seconds_bucket[1h])))",
                    name,
                )
                for share, name in ((0.5, "half"), (0.9, "nine in ten"))
            ),
            unit=Unit.SECONDS,
        ),
    ),
)
TIME: Final = Row(
    "Where the time of the workers goes",
    (
        graph(
            "Lost time by cause",
            "Workers that are lost to each cause: 2 means that two workers make no progress because of it.",
            Query(f"sum by (cause) ({LOST})", "{{cause}}"),
            stacked=True,
            width=12,
        ),
        graph(
            "Goodput by namespace",
            "Share of the workers' time in steps that count.",
            Query(
                f"sum by (namespace) ({PRODUCTIVE}) / (sum by (namespace) ({PRODUCTIVE})"
                f" + sum by (namespace) ({LOST}))",
                "{{namespace}}",
            ),
            unit=Unit.RATIO,
            width=12,
        ),
    ),
)
TROUBLE: Final = Row(
    "Trouble",
    (
        graph(
            "Findings",
            "Verdicts about workers and nodes within ten minutes, by reason.",
            Query(f"sum by (reason) (increase(elasticjob_findings_total{{{HERE}}}[10m]))", "{{reason}}"),
            stacked=True,
        ),
        graph(
            "Worker restarts",
            "Workers that ended badly within ten minutes: the ten jobs with most of them.",
            Query(
                "topk(10, sum by (namespace, job) (increase("
                f"elasticjob_worker_restarts_total{{{HERE}}}[10m])))",
                "{{namespace}}/{{job}}",
            ),
        ),
        graph(
            "Standstill",
            "Share of the time without a step since the world changed: the ten jobs with most of it.",
            Query(
                "topk(10, sum by (namespace, job) (rate("
                f"elasticjob_standstill_seconds_total{{{HERE}}}[$__rate_interval])))",
                "{{namespace}}/{{job}}",
            ),
            unit=Unit.RATIO,
        ),
    ),
)


def use(title: str, used: str, there_is: str, unit: Unit) -> Panel:
    """Return what the nodes of all jobs use of a resource, and what there is of it."""
    return graph(
        title,
        "What the nodes of all jobs use, and what they have.",
        Query(f"sum(elasticjob_node_{used}{{{HERE}}})", "used"),
        Query(f"sum(elasticjob_node_{there_is}{{{HERE}}})", "there is"),
        unit=unit,
        width=6,
    )


USE: Final = Row(
    "Resources",
    (
        use("Cores", "cpu_cores", "cpu_configured_cores", Unit.CORES),
        use("Memory", "memory_bytes", "memory_configured_bytes", Unit.BYTES),
        use("GPU memory", "gpu_memory_bytes", "gpu_memory_total_bytes", Unit.BYTES),
        graph(
            "GPU utilization",
            "How busy the GPUs of each job are: the ten jobs with the least.",
            Query(
                f"bottomk(10, avg by (namespace, job) (elasticjob_node_gpu_utilization_ratio{{{HERE}}}))",
                "{{namespace}}/{{job}}",
            ),
            unit=Unit.RATIO,
            width=6,
        ),
    ),
)

BOARD: Final = Board(
    "fleet",
    "All jobs",
    "How many jobs there are, how well they train, and where the time of their workers goes.",
    (choice("namespace", "Namespace", "label_values(elasticjob_step, namespace)", several=True),),
    (NOW, JOBS, TIME, TROUBLE, USE),
)
