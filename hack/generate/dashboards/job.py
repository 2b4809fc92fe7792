"""The dashboard of one job: progress, world, lost time, checkpoints, nodes."""

from __future__ import annotations

from typing import Final

from hack.generate.dashboards.panels import (
    AMBER,
    BLUE,
    GREEN,
    RED,
    Board,
    Query,
    Row,
    Unit,
    choice,
    graph,
    number,
)

THIS: Final = '{namespace="$namespace",job="$job"}'
OWNED: Final = '{job_namespace="$namespace",job_name="$job"}'
"""The same job in the operator's series, whose namespace is the operator's."""


def of(name: str) -> str:
    """Return a value that the job has once; its master may have been replaced."""
    return f"max(elasticjob_{name}{THIS})"


def pace(name: str) -> str:
    """Return how fast a counter of the job grows."""
    return f"rate(elasticjob_{name}{THIS}[$__rate_interval])"


NOW: Final = Row(
    "Now",
    (
        number("Step", "Optimizer steps since the job began.", of("step"), base=BLUE, width=3),
        number("Steps a second", "In the present round.", of("steps_per_second"), base=BLUE, width=3),
        number("Loss", "As the training reported it last.", of("loss"), base=BLUE, width=3),
        number("Workers", "Workers that train together.", of("world_size"), base=BLUE, width=3),
        number(
            "Goodput",
            "Share of the workers' time in steps that count, since the job began.",
            of("goodput_ratio"),
            Unit.RATIO,
            base=RED,
            steps={0.5: AMBER, 0.8: GREEN},
            width=3,
        ),
        number(
            "Steps at risk",
            "Steps since the newest checkpoint in storage: what a loss of all nodes would cost.",
            f"{of('step')} - {of('checkpoint_step')}",
            base=BLUE,
            width=3,
        ),
        number(
            "Restarts left",
            "How often the node with the most failures may still fail before it is not replaced any more.",
            f"min(elasticjob_restarts_left{THIS})",
            base=RED,
            steps={1: AMBER, 2: GREEN},
            width=3,
        ),
        number("Slow workers", "Workers that are slow now.", of("stragglers"), steps={1: AMBER}, width=3),
    ),
)
PROGRESS: Final = Row(
    "Progress",
    (
        graph("Loss", "As the training reports it.", Query(of("loss"), "loss"), signed=True),
        graph(
            "Speed",
            "Optimizer steps a second in the present round; no line while the job makes none.",
            Query(of("steps_per_second"), "steps a second"),
        ),
        graph(
            "Records",
            "Records a second in the present round.",
            Query(of("samples_per_second"), "records a second"),
        ),
    ),
)
WORLD: Final = Row(
    "World",
    (
        graph(
            "Nodes",
            "Nodes by what they do: a job that grows has some that start or wait.",
            Query(f"sum by (state) (elasticjob_nodes{THIS})", "{{state}}"),
            stacked=True,
            width=6,
        ),
        graph(
            "Workers and rounds",
            "Each change of the world is a round.",
            Query(of("world_size"), "workers"),
            Query(of("round"), "round"),
            width=6,
        ),
        graph(
            "Plans",
            "ScalePlans of the job that ended, by their outcome.",
            Query(f"max by (outcome) (elasticjob_plans_total{OWNED})", "{{outcome}}"),
            width=6,
        ),
        graph(
            "Standstill",
            "Share of the time without a step since the world changed.",
            Query(f"sum({pace('standstill_seconds_total')})", "standstill"),
            unit=Unit.RATIO,
            width=6,
        ),
    ),
)
TIME: Final = Row(
    "Where the time of the workers goes",
    (
        graph(
            "Workers' time by cause",
            "How many workers make steps that count, and how many are lost to each cause.",
            Query(f"sum({pace('productive_seconds_total')})", "productive"),
            Query(f"sum by (cause) ({pace('badput_seconds_total')})", "{{cause}}"),
            stacked=True,
            width=12,
        ),
        graph(
            "Time since the last step",
            "A line that rises is a job that makes no step; `hanging` is 1 while its master says so.",
            Query(f"time() - {of('last_step_timestamp_seconds')}", "since the last step"),
            Query(of("usual_step_seconds"), "usual step"),
            Query(of("hanging"), "hanging"),
            unit=Unit.SECONDS,
            width=12,
        ),
    ),
)
TROUBLE: Final = Row(
    "Trouble",
    (
        graph(
            "Findings",
            "Verdicts about workers and nodes since the job began, by reason.",
            Query(f"max by (reason) (elasticjob_findings_total{THIS})", "{{reason}}"),
        ),
        graph(
            "Worker restarts",
            "Workers that ended with an error since the job began, and restarts that are left.",
            Query(of("worker_restarts_total"), "worker restarts"),
            Query(f"min(elasticjob_restarts_left{THIS})", "restarts left"),
        ),
        graph(
            "Workers by what they do",
            "As they told last.",
            Query(f"sum by (doing) (elasticjob_workers{THIS})", "{{doing}}"),
            stacked=True,
        ),
    ),
)
CHECKPOINTS: Final = Row(
    "Checkpoints",
    (
        graph(
            "Steps that are kept",
            "The newest step, and the newest that is in the memory of nodes and in storage.",
            Query(of("step"), "trained"),
            Query(of("checkpoint_memory_step"), "in memory"),
            Query(of("checkpoint_step"), "in storage"),
        ),
        graph(
            "Time of a checkpoint",
            "From the copy of the newest checkpoint to its commit in storage.",
            Query(of("checkpoint_seconds"), "checkpoint"),
            unit=Unit.SECONDS,
        ),
        graph(
            "Age of the newest checkpoint",
            "Time since the newest checkpoint reached storage; `failing` is 1 while the last one did not.",
            Query(f"time() - {of('checkpoint_timestamp_seconds')}", "age"),
            Query(of("checkpoint_failing"), "failing"),
            unit=Unit.SECONDS,
        ),
    ),
)


def of_nodes(name: str) -> str:
    """Return a value of each node."""
    return f"max by (node) (elasticjob_node_{name}{THIS})"


NODES: Final = Row(
    "Nodes",
    (
        graph(
            "Time of a step",
            "Usual time from step to step of the slowest worker: a line above the others is a slow node.",
            Query(of_nodes("step_seconds"), "{{node}}"),
            unit=Unit.SECONDS,
        ),
        graph(
            "Records by node",
            "Records that each node takes in a second.",
            Query(of_nodes("samples_per_second"), "{{node}}"),
        ),
        graph(
            "Cores",
            "What each node uses, and what most of them ask for.",
            Query(of_nodes("cpu_cores"), "{{node}}"),
            Query(f"max(elasticjob_node_cpu_configured_cores{THIS})", "asked for"),
            unit=Unit.CORES,
        ),
        graph(
            "Memory",
            "What each node uses, and what the largest of them asks for.",
            Query(of_nodes("memory_bytes"), "{{node}}"),
            Query(f"max(elasticjob_node_memory_configured_bytes{THIS})", "asked for"),
            unit=Unit.BYTES,
        ),
        graph(
            "GPU utilization",
            "How busy the GPUs of each node are on average.",
            Query(of_nodes("gpu_utilization_ratio"), "{{node}}"),
            unit=Unit.RATIO,
        ),
        graph(
            "GPU memory",
            "What is used of the memory of each node's GPUs.",
            Query(of_nodes("gpu_memory_bytes"), "{{node}}"),
            Query(f"max(elasticjob_node_gpu_memory_total_bytes{THIS})", "there is"),
            unit=Unit.BYTES,
        ),
    ),
)
MASTER: Final = Row(
    "Master",
    (
        graph(
            "Unsaved state",
            "For how long the job's state could not be saved: a new master would lack what came since.",
            Query(of("snapshot_unsaved_seconds"), "unsaved"),
            unit=Unit.SECONDS,
        ),
        graph(
            "Ready",
            "1 while the operator finds the master ready, and while Prometheus reads its metrics.",
            Query(f"max(elasticjob_job_master_ready{OWNED})", "ready"),
            Query('max(up{component="elasticjob-master",namespace="$namespace",job="$job"})', "read"),
        ),
        graph(
            "Failed passes",
            "Passes of the master's loops that met an unexpected error.",
            Query(f"max by (loop) (elasticjob_failed_passes_total{THIS})", "{{loop}}"),
        ),
    ),
)

BOARD: Final = Board(
    "job",
    "One job",
    "Whether a job makes progress, what its workers lose time to, and what each of its nodes uses.",
    (
        choice("namespace", "Namespace", "label_values(elasticjob_step, namespace)"),
        choice("job", "Job", 'label_values(elasticjob_step{namespace="$namespace"}, job)'),
    ),
    (NOW, PROGRESS, WORLD, TIME, TROUBLE, CHECKPOINTS, NODES, MASTER),
)
