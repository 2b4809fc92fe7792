"""Kubeflow's MPIJob: each worker runs the command that the launcher would have started over ssh."""

from __future__ import annotations

from dataclasses import replace
from posixpath import basename
from typing import Any, Final

from elasticjob.api.v1alpha1.checks.launchers import SHELLS
from elasticjob.cli.convert import pods, training
from elasticjob.cli.convert.launchers.containers import Rewritten, list_of, rewritten
from elasticjob.cli.convert.launchers.launch import OF_SSH, Launch
from elasticjob.cli.convert.runpolicy import clean_pod_policy, run_policy
from elasticjob.cli.convert.system import Fields, System, Unconvertible, Verdict, child, kind
from elasticjob.cli.convert.systems.pytorchjob import GROUP, MARKS, general
from elasticjob.cli.convert.training import Training, node_fields, note_near, role_of
from elasticjob.kube.objects.kinds import Manifest

WORKERS: Final = "spec.replicaSpecs.worker"
NO_POD: Final = "there is no launcher: its command is that of the workers, and their resources are their own"
BESIDE: Final = "no pod has it: write it into the template of the workers, if they need it"
OF_MPI: Final = replace(
    MARKS, objects=(r"/etc/mpi(?:/\w+)?", r"{job}-(?:config|ssh)", r"/(?:root|home/mpiuser)/\.ssh")
)
"""What mpi-operator puts into pods, and makes beside them."""
THE_COMMAND: Final = "the workers run the launcher's command in its place"


def _read(whole: Fields) -> list[Manifest]:
    """Return the job of the workers. Raises Unconvertible if only MPI can start their program."""
    spec = whole.below("spec")
    if "template" in spec and "mpiReplicaSpecs" not in spec:
        worker, sizes = _of_one_template(spec)
    else:
        worker, sizes = _of_roles(spec)
    spec.leave("sshAuthMountPath mpiImplementation mpiDistribution launcherCreationPolicy", OF_SSH)
    spec.drop("mainContainer", "the container called main is, else the first", harmless=True)
    policy = spec.below("runPolicy")
    made: Manifest = {
        **general(policy),
        **node_fields(worker.launch),
        "replicaSpecs": {"worker": role_of(worker, sizes)},
        "runPolicy": {
            "cleanPodPolicy": clean_pod_policy(spec),
            "backoffLimit": spec.number("backoffLimit"),
            "activeDeadlineSeconds": spec.number("activeDeadlineSeconds"),
            **run_policy(policy),
        },
    }
    made["runPolicy"] = pods.without_empty(made["runPolicy"])
    return [pods.job(whole, made)]


def _of_roles(spec: Fields) -> tuple[Training, dict[str, Any]]:
    roles = training.members(spec, "mpiReplicaSpecs", ("Launcher", "Worker"))
    if "Launcher" not in roles:
        raise Unconvertible("spec.mpiReplicaSpecs has no Launcher: write one, with the command")
    launcher, worker = roles["Launcher"], roles.get("Worker", roles["Launcher"])
    each = training.processes(spec, "slotsPerWorker")
    given = worker.number("replicas", f"as {WORKERS}.replicas")
    count = 1 if given is None else given
    beside = spec.flag("runLauncherAsWorker", "as one more worker")
    workers = count + bool(beside)
    if beside and given is not None:
        worker.keep("replicas", f"counted in {WORKERS}.replicas, with the launcher")
    starter = launcher_container(launcher, Launch("", processes=each or "1", nodes=(workers, workers)))
    template = pods.template(worker)
    if worker is not launcher:
        template = under(worker, template, starter.container, launcher)
        launcher.leave("replicas restartPolicy", NO_POD)
    launch = starter.launch
    found = Training(template, launch)
    sizes: dict[str, Any] = {"replicas": workers}
    if launch is not None and launch.nodes is not None and launch.nodes != (workers, workers):
        least, most = launch.nodes
        if least == most:
            worker.change("replicas", f"is {most} now: the launcher's command says so")
            sizes = {"replicas": most}
        else:
            sizes |= {"minReplicas": min(least, workers), "maxReplicas": max(most, workers)}
    policy = worker.text("restartPolicy", "")
    return found, {**sizes, **({"restartPolicy": policy} if policy else {})}


def launcher_container(launcher: Fields, defaults: Launch) -> Rewritten:
    """Return the launcher's main container with elasticjob run. Raises Unconvertible if it cannot be."""
    found = pods.containers(pods.template(launcher))
    launcher.note(child(launcher.path, "template"), Verdict.KEPT, NO_POD)
    path = f"{launcher.path}.template.spec.containers[0]"
    if not found or not (found[0].get("command") or found[0].get("args")):
        raise Unconvertible(
            f"{path}.command is absent: write the command of the image, mpirun and its arguments"
        )
    made = rewritten(found[0], plainly=True, defaults=defaults)
    if made.launch is None:
        raise Unconvertible(f"{path}.command calls no launcher that is known: write mpirun and its arguments")
    if not made.launch.python and basename(made.launch.script) not in (*SHELLS, "python3"):
        raise Unconvertible(f"{path}.command starts {made.launch.script or 'nothing'}, {training.NEEDS_MPI}")
    training.say(launcher, made.notes(path))
    return made


def under(worker: Fields, template: Manifest, starter: Manifest, launcher: Fields) -> Manifest:
    """Return the workers' template with the launcher's command, and with its variables below their own."""
    found = pods.containers(template)
    if not found:
        raise Unconvertible(f"{worker.path}.template has no container: write one, with its image")
    path, main = f"{worker.path}.template.spec.containers[0]", found[0]
    for field in ("command", "args"):
        if main.get(field):
            note_near(worker, child(path, field), Verdict.CHANGED, THE_COMMAND)
    given = [*list_of(starter.get("env")), *list_of(main.get("env"))]
    env = {str(each["name"]): each for each in given if isinstance(each, dict) and "name" in each}
    own = {name: value for name, value in main.items() if name not in ("command", "args", "env")}
    theirs: Manifest = {name: starter[name] for name in ("command", "args", "workingDir") if name in starter}
    image = {"image": starter["image"]} if not own.get("image") and starter.get("image") else {}
    made: Manifest = {**theirs, **own, **image, **({"env": list(env.values())} if env else {})}
    whole = training.with_main(template, training.with_image(worker, path, made))
    for lost in training.missing(launcher.peek("template"), whole):
        if lost in ("spec.initContainers", "spec.containers"):  # beside the main one
            launcher.note(f"{launcher.path}.template.{lost}", Verdict.DROPPED, BESIDE)
    return whole


def _of_one_template(spec: Fields) -> tuple[Training, dict[str, Any]]:
    """Return the workers of v1alpha1: one template, and a number of GPUs, processing units or replicas."""
    count, gpus = (
        spec.number("replicas", f"as {WORKERS}.replicas"),
        spec.number("gpus", "as GPUs of all workers"),
    )
    units = spec.number("processingUnits", "as GPUs of all workers")
    total = gpus or units
    names = ("gpusPerNode", "processingUnitsPerNode", "slotsPerWorker")
    each = training.processes(spec, *names)
    spec.drop("launcherOnMaster", "there is no launcher", harmless=True)
    template = pods.template(spec)
    found = pods.containers(template)
    per = (
        int(each if each.isdecimal() else 0)
        or (training.devices(found[0]) if found else 0)
        or min(total or 1, 8)
    )
    workers = count or max((total or per) // max(per, 1), 1)
    starter = launcher_container(spec, Launch("", processes=str(per), nodes=(workers, workers)))
    container = training.with_image(spec, "spec.template.spec.containers[0]", starter.container)
    if total and total != workers * per:
        field = "gpus" if gpus else "processingUnits"
        spec.change(field, f"are {workers * per} in all: replicas {workers}, {per} on each")
    if total and not training.devices(container):
        container = {**container, "resources": {"limits": {"nvidia.com/gpu": str(per)}}}
    return Training(training.with_main(template, container), replace(starter.launch or Launch(""))), {
        "replicas": workers
    }


MPIJOB: Final = System(
    "Kubeflow MPIJob", (kind(GROUP, "MPIJob", "v2beta1"), kind(GROUP, "MPIJob")), _read, OF_MPI
)
