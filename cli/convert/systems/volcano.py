"""Volcano's Job: tasks become roles, minAvailable the gang; ElasticJobs need no plugins."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from elasticjob.api.roles import CHIEF, EVALUATOR, PS, WORKER
from elasticjob.api.v1alpha1.common import LABEL_INDEX, LABEL_JOB, LABEL_ROLE
from elasticjob.api.v1alpha1.elasticjob import DistributionStrategy, SuccessPolicy
from elasticjob.cli.convert import pods, training
from elasticjob.cli.convert.launchers.containers import list_of
from elasticjob.cli.convert.launchers.launch import Launch
from elasticjob.cli.convert.system import Fields, Marks, System, Unconvertible, Verdict, child, kind
from elasticjob.cli.convert.systems.mpijob import launcher_container, under
from elasticjob.cli.convert.training import Training, node_fields, role_of, within
from elasticjob.kube.objects.kinds import Manifest

GROUP: Final = "batch.volcano.sh"
MEANT: Final = {
    **dict.fromkeys(("ps", "pserver", "server"), PS),
    **dict.fromkeys(("worker", "trainer"), WORKER),
    **{role: role for role in (CHIEF, EVALUATOR)},
}
"""Usual names of tasks, and their roles in a job with parameter servers."""
PLUGINS: Final[Mapping[str, tuple[str, bool]]] = {
    "svc": (
        "each job has a service, and pods are <job>-<role>-<index>.<job>; no file in /etc/volcano lists them",
        False,
    ),
    "ssh": ("no node is reached by ssh: there are no keys", True),
    "env": ("VC_TASK_INDEX and VK_TASK_INDEX are set from the label elasticjob.dlrover/replica-index", True),
    "pytorch": ("elasticjob run sets MASTER_ADDR, RANK and WORLD_SIZE", True),
    "tensorflow": ("the operator sets TF_CONFIG", True),
    "mpi": ("no node is reached by ssh, and there is no MPI_HOST: each worker runs elasticjob run", True),
    "ray": ("there is no Ray cluster: docs/from-kuberay.md", False),
}
"""Plugins: their replacement here, and whether dropping them loses nothing."""
INDEX: Final = ("VC_TASK_INDEX", "VK_TASK_INDEX")
ONE_COUNT: Final = "VC_TASK_INDEX and VK_TASK_INDEX count over all tasks that are the role worker now"
OF_INDEX: Final = f"metadata.labels['{LABEL_INDEX}']"
EVICTED: Final = frozenset({"PodEvicted", "PodFailed", "TaskFailed", "JobUnknown", "PodPending"})
REPLACED: Final = "a pod that is evicted or fails is replaced, while restartCount lasts; the others go on"
BY_CODES: Final = "write runPolicy.failurePolicy, by exit codes"
AT_ONCE: Final = "pods start at once: they meet at the job's master, or wait for each other"
IN_ORDER: Final = "the job succeeds when its workers have: runPolicy.successPolicy"

MARKS: Final = Marks(
    labels=(
        (r"volcano\.sh/job-name", LABEL_JOB),
        (r"volcano\.sh/task-spec", LABEL_ROLE),
        (r"volcano\.sh/task-index", LABEL_INDEX),
        (r"(?:scheduling\.)?volcano\.sh/.+|scheduling\.k8s\.io/group-name", ""),
    ),
    variables=(
        (r"VC_(?!TASK_INDEX)[A-Z_]+|MPI_HOST", ""),
        (r"\$[({]?RANK", "NODE_RANK"),
        (r"\$[({]?(?:MASTER_ADDR|MASTER_PORT|WORLD_SIZE)", ""),
    ),
    hosts=r"{job}-[a-z][a-z-]*-\d+",
    objects=(r"{job}-(?:svc|ssh)", r"/(?:root)/\.ssh", r"/etc/volcano/[\w.-]+"),
)
"""What Volcano and its plugins put into pods."""


def _read(whole: Fields) -> list[Manifest]:
    """Return the job. Raises Unconvertible if there is no task."""
    spec = whole.below("spec")
    tasks = {str(task.peek("name") or "worker").lower(): task for task in spec.each("tasks")}
    if not tasks:
        raise Unconvertible("spec.tasks has no task: write one, with its template")
    plugins = _plugins(spec)
    of_tensorflow = "tensorflow" in plugins or any("TF_CONFIG" in _text(task) for task in tasks.values())
    specs, launch = _roles(tasks, plugins)
    strategy = _strategy(specs, launch, plugins)
    if "env" in plugins and WORKER in specs and len(tasks) > len(specs):
        spec.below("plugins").change("env", ONE_COUNT)
    claims = list(_volumes(spec, specs, whole))
    indexed = "env" in plugins or any(name in str(specs) for name in INDEX)
    made: Manifest = {
        "distributionStrategy": strategy.value,
        **node_fields(launch),
        "envs": {key: {"valueFrom": {"fieldRef": {"fieldPath": OF_INDEX}}} for key in INDEX if indexed},
        "replicaSpecs": specs,
        "runPolicy": _policy(spec, tasks, specs, ranked="pytorch" in plugins),
    }
    framework = "tensorflow" if of_tensorflow and strategy is not DistributionStrategy.CUSTOM else ""
    return [pods.job(whole, made, framework=framework), *claims]


def _plugins(spec: Fields) -> dict[str, Any]:
    found = spec.below("plugins")
    for name in found.value:
        why, harmless = PLUGINS.get(name, ("there are no plugins", False))
        found.drop(name, why, harmless=harmless)
    return found.value


def _roles(tasks: dict[str, Fields], plugins: Mapping[str, Any]) -> tuple[dict[str, Manifest], Launch | None]:
    """Return the roles of tasks, and the launch of the role that trains."""
    for task in tasks.values():
        task.keep("name")
    if (pair := _of_mpi(tasks)) is not None:
        return pair
    has_servers = any(MEANT.get(name) == PS for name in tasks)
    ranked = "pytorch" in plugins
    found: dict[str, Manifest] = {}
    firsts: dict[str, Fields] = {}
    launch: Launch | None = None
    for name, task in sorted(tasks.items(), key=lambda each: each[0] != WORKER):  # its template is for all
        made = training.training_template(task, plainly=ranked)
        role = _role_name(name, len(tasks), has_servers=has_servers, ranked=ranked or made.launch is not None)
        if role != name:
            task.keep("name", f"the role is {role}")
        if role in found:
            found[role] = _more(found[role], firsts[role], task)
            training.compare(task, made.template, found[role]["template"])
            continue
        firsts[role], found[role] = task, role_of(made, _sizes(task))
        launch = launch or made.launch
    return found, launch


def _role_name(name: str, count: int, *, has_servers: bool, ranked: bool) -> str:
    """Return the role of a task: its own name, or one of MEANT."""
    if has_servers and name in MEANT:
        return MEANT[name]
    if count == 1 or (ranked and name in ("master", "worker", "launcher")):
        return WORKER
    plain = re.sub("[^a-z0-9]+", "-", name).strip("-") or WORKER
    if plain in ("master", PS, CHIEF):  # words that mean something to the operator
        plain = f"{plain}-task"
    return f"{plain}th" if re.search(r"(^|-)\d+$", plain) else plain


def _sizes(task: Fields) -> dict[str, Any]:
    """Return the number of a task's pods, and its range if it may run with fewer."""
    count = task.number("replicas") if "replicas" in task else 1
    least = task.number("minAvailable", "as minReplicas of the role")
    sizes = within(task, {"replicas": 1 if count is None else count, "minReplicas": least})
    return _range(sizes.get("minReplicas", sizes["replicas"]), sizes["replicas"])


def _range(least: int, most: int) -> dict[str, Any]:
    return {"replicas": most} | ({"minReplicas": least, "maxReplicas": most} if least < most else {})


def _more(role: Manifest, first: Fields, task: Fields) -> Manifest:
    """Return a role with the pods of another task that trains with its `first` one."""
    added: Manifest = _sizes(task)
    most = role["replicas"] + added["replicas"]
    least = sum(sizes.get("minReplicas") or int(sizes["replicas"]) for sizes in (role, added))
    for each in (first, task):
        for field, name in (("replicas", "replicas"), ("minAvailable", "minReplicas")):
            _note_sum(each, field, f"counted in spec.replicaSpecs.{WORKER}.{name}")
    rest = {name: value for name, value in role.items() if name not in ("minReplicas", "maxReplicas")}
    return {**rest, **_range(least, most)}


def _note_sum(task: Fields, field: str, why: str) -> None:
    """Add to the note on a number that it is one of a sum."""
    note = task.log.notes.get(child(task.path, field))
    if note is not None and note.verdict is Verdict.KEPT:
        task.keep(field, why)
    elif note is not None and note.verdict is Verdict.CHANGED and why not in note.why:
        task.change(field, f"{note.why}; {why}")


def _of_mpi(tasks: dict[str, Fields]) -> tuple[dict[str, Manifest], Launch | None] | None:
    """Return the workers of a pair of tasks of which one starts the other's processes over ssh."""
    if len(tasks) != 2:
        return None
    starter = next(
        (task for task in tasks.values() if re.search(r"\b(mpirun|mpiexec|horovodrun)\b", _text(task))), None
    )
    if starter is None:
        return None
    [worker] = [task for task in tasks.values() if task is not starter]
    given = worker.number("replicas", "as spec.replicaSpecs.worker.replicas")
    count = 1 if given is None else given
    made = launcher_container(starter, Launch("", nodes=(count, count)))
    starter.drop("replicas", "there is no launcher", harmless=True)
    template = under(worker, pods.template(worker), made.container, starter)
    return {WORKER: role_of(Training(template), {"replicas": count})}, made.launch


def _strategy(
    specs: Mapping[str, Any], launch: Launch | None, plugins: Mapping[str, Any]
) -> DistributionStrategy:
    if PS in specs and (WORKER in specs or CHIEF in specs):
        return DistributionStrategy.PARAMETER_SERVER
    if WORKER in specs and (launch is not None or "pytorch" in plugins or "tensorflow" in plugins):
        return DistributionStrategy.ALLREDUCE
    return DistributionStrategy.CUSTOM


def _policy(spec: Fields, tasks: dict[str, Fields], specs: Mapping[str, Any], *, ranked: bool) -> Manifest:
    least = spec.number("minAvailable", "as scheduling.minAvailable")
    most = sum(role.get("maxReplicas", role.get("replicas", 1)) for role in specs.values())
    if least is not None and least > most:
        spec.change("minAvailable", f"is {most} now: there are {most} pods")
        least = most
    if least == 0:
        spec.drop("minAvailable", "0 is the default", harmless=True)
    scheduler = spec.peek("schedulerName")
    spec.keep(
        "schedulerName", "as scheduling.gang" if scheduler in (None, "volcano") else "in templates alone"
    )
    queue = spec.text("queue", "as scheduling.queue")
    spec.drop("minSuccess", IN_ORDER)
    spec.drop("networkTopology", "write affinity by the labels of machines in the template")
    spec.drop("runningEstimate", "the status has the time that is left: training.eta", harmless=True)
    _lifecycle(spec)
    chief = False
    for name, task in tasks.items():
        ends = _lifecycle(task)
        leads = MEANT.get(name) == CHIEF or (ranked and name == "master")
        chief = chief or (ends and leads)
        task.drop("maxRetry", "write restartCount, restarts of each node")
        task.drop("dependsOn", AT_ONCE)
        task.drop("topologyPolicy", "the kubelet's own policy decides")
        task.drop("partitionPolicy", "write affinity in the template")
    found: Manifest = {
        "backoffLimit": spec.number("maxRetry", "as runPolicy.backoffLimit: nodes that are replaced, in all"),
        "ttlSecondsAfterFinished": spec.number("ttlSecondsAfterFinished"),
        "successPolicy": SuccessPolicy.CHIEF_OR_WORKER_0.value if chief and WORKER in specs else None,
        "scheduling": pods.without_empty(
            {
                "gang": "volcano",
                "minAvailable": least or None,
                "queue": queue,
                "priorityClassName": spec.text("priorityClassName", "as scheduling.priorityClassName"),
            }
        ),
    }
    return pods.without_empty(found)


def _lifecycle(fields: Fields) -> bool:
    """Add notes on policies; return whether the end of a task ends the job."""
    ends = False
    for policy in fields.each("policies") if "policies" in fields else ():
        given = (policy.peek("event"), *list_of(policy.peek("events")))
        verdict, why = _meaning({str(one) for one in given if one is not None}, policy)
        ends = ends or why == IN_ORDER
        for name in ("event", "events", "action", "exitCode"):
            if name in policy:
                policy.note(child(policy.path, name), verdict, why)
        policy.drop("timeout", why)
    return ends


def _meaning(events: set[str], policy: Fields) -> tuple[Verdict, str]:
    """Return the verdict on a policy for these events, and the reason."""
    action = policy.peek("action")
    if "exitCode" in policy:
        return Verdict.DROPPED, BY_CODES
    if "TaskCompleted" in events and action == "CompleteJob":
        return Verdict.KEPT, IN_ORDER
    if events and events <= EVICTED and action in ("RestartJob", "RestartTask", "RestartPod"):
        return Verdict.CHANGED, REPLACED
    return Verdict.DROPPED, "there are no actions by event: docs/health.md"


def _volumes(spec: Fields, specs: dict[str, Manifest], whole: Fields) -> Iterator[Manifest]:
    """Mount the job's volumes in all containers; yield the claims that it would make."""
    about = whole.below("metadata")
    for at, volume in enumerate(spec.each("volumes") if "volumes" in spec else ()):
        name = f"volume-{at}"
        path = volume.keep("mountPath", "mounted in each container")
        claim = volume.text("volumeClaimName", "as a volume of each template")
        if not claim and isinstance(volume.peek("volumeClaim"), dict):
            claim = f"{pods.job_name(whole.source.name or 'converted')}-{at}"
            volume.keep("volumeClaim", f"as the PersistentVolumeClaim {claim}")
            metadata = pods.without_empty({"name": claim, "namespace": about.peek("namespace")})
            yield {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": metadata,
                "spec": volume.peek("volumeClaim"),
            }
        source: Manifest = {"persistentVolumeClaim": {"claimName": claim}} if claim else {"emptyDir": {}}
        for role in specs.values():
            _mount(role, {"name": name, **source}, {"name": name, "mountPath": path})


def _mount(role: Manifest, volume: Manifest, mount: Manifest) -> None:
    pod = role["template"]["spec"] = dict(training.pod_of(role.setdefault("template", {})))
    pod["volumes"] = [*list_of(pod.get("volumes")), volume]
    for one in pods.containers(role["template"]):
        one["volumeMounts"] = [*list_of(one.get("volumeMounts")), mount]


def _text(task: Fields) -> str:
    """Return the commands and arguments of a task's containers as one string."""
    template = task.peek("template")
    found = pods.containers(template) if isinstance(template, dict) else []
    return "\n".join(
        str(word) for one in found for field in ("command", "args") for word in list_of(one.get(field))
    )


VOLCANO: Final = System("Volcano Job", (kind(GROUP, "Job", "v1alpha1"),), _read, MARKS)
