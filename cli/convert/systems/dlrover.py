"""DLRover's ElasticJob and ScalePlan: the group and most fields are ours.

A field that our models have is kept, in today's spelling; a manifest of ours comes out as it went in.
"""

from __future__ import annotations

import re
from typing import Any, Final

from elasticjob.api.v1alpha1.common import GROUP, MASTER, MASTER_ALIAS
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB, DistributionStrategy, ElasticJobSpec, Gang
from elasticjob.api.v1alpha1.jobresource import JOBRESOURCE, JobResourceSpec
from elasticjob.api.v1alpha1.older import todays_job, todays_plan
from elasticjob.api.v1alpha1.scaleplan import SCALEPLAN, ScalePlanSpec
from elasticjob.cli.convert import pods
from elasticjob.cli.convert.launchers.containers import rewritten
from elasticjob.cli.convert.launchers.launch import Launch
from elasticjob.cli.convert.ours import known
from elasticjob.cli.convert.system import Converted, Fields, Source, Verdict, child
from elasticjob.cli.convert.training import asked, note_near, ordered, path_of, say
from elasticjob.kube.objects.kinds import Manifest

OLDER: Final = ("command", "image", "parameter_server", "parameterServer", "worker", "evaluator")
"""Fields of the EasyDL form, which todays_job reads."""
ROLES_OF_OLDER: Final = {"parameter_server": "ps", "parameterServer": "ps"}
WITHOUT_EFFECT: Final = {
    "enableElasticScheduling": "the range minReplicas to maxReplicas of a role makes it elastic",
    "enableDynamicSharding": "the script asks for shards: docs/shards.md",
}
BY_HEARTBEAT: Final = "without effect: the master notices lost nodes by heartbeat"
ITS_MASTER: Final = "it starts DLRover's master: the operator has its own image of the job's master"
CANNOT_SPEAK: Final = "cannot speak to this job's master: write a script of your own (docs/from-dlrover.md)"
DLROVERS: Final = re.compile(r"dlrover\.(?:trainer|python)(?:\.\w+)+")
SIZES: Final = ("replicas", "minReplicas", "maxReplicas")


class DLRover:
    """ElasticJobs and ScalePlans of DLRover, and our own."""

    NAME = "DLRover ElasticJob, ScalePlan"
    KINDS = (ELASTICJOB.untyped(), SCALEPLAN.untyped(), JOBRESOURCE.untyped())

    def recognises(self, source: Source) -> bool:
        """Whether it is a kind of this group."""
        return source.is_a(GROUP, ELASTICJOB.name, SCALEPLAN.name, JOBRESOURCE.name)

    def convert(self, source: Source) -> Converted:
        """Return the same object in today's fields."""
        whole = Fields(source)
        match source.manifest["kind"]:
            case ELASTICJOB.name:
                made = pods.job(whole, job_spec(whole.below("spec")))
            case SCALEPLAN.name:
                made = pods.made(whole, SCALEPLAN, plan_spec(whole.below("spec")), name=_name(whole))
            case _:
                spec = known(whole.below("spec"), JobResourceSpec)
                made = pods.made(whole, JOBRESOURCE, spec, name=_name(whole))
        return Converted(made, whole.notes())


def job_spec(spec: Fields) -> Manifest:
    """Return the spec of an ElasticJob, DLRover's or EasyDL's, in today's fields."""
    launches: dict[str, Launch] = {}
    found = known(spec, ElasticJobSpec, lambda role: _template(role, launches))
    for field, why in WITHOUT_EFFECT.items():
        found.pop(field, None)
        spec.drop(field, why)
    _strategy(spec, found)
    gang = ""
    members = spec.below("replicaSpecs")
    for name, role in (found.get("replicaSpecs") or {}).items():
        fields = members.below(name)
        if isinstance(role, dict):
            role.pop("restartTimeout", None)
            fields.drop("restartTimeout", BY_HEARTBEAT, harmless=True)
            gang = _gang(fields) or gang
            if name in (MASTER, MASTER_ALIAS):
                _own_master(fields, role)
            elif launch := launches.get(fields.path):
                sizes = {**launch.sizes(), **{name: role[name] for name in SIZES if name in role}}
                found["replicaSpecs"][name] = {**ordered(sizes), **_others(role)}
                found |= {name: value for name, value in asked(launch).items() if name not in found}
    if gang:
        policy = found.setdefault("runPolicy", {})
        policy.setdefault("scheduling", {}).setdefault("gang", gang)
    return _todays(spec, found)


def plan_spec(spec: Fields) -> Manifest:
    """Return the spec of a ScalePlan in today's fields."""
    found = todays_plan(known(spec, ScalePlanSpec))
    found.pop("replicaResourceSpec", None)
    for field in ("createPods", "removePods", "migratePods"):
        for before, now in zip(spec.each(field), found.get(field) or (), strict=False):
            if now.get("name") != before.peek("name"):
                before.keep("name", f"as {now.get('name')}")
    return found


def _template(role: Fields, launches: dict[str, Launch]) -> Manifest:
    """Return the template of a role with elasticjob run in place of a launcher, and remember the launch."""
    made = pods.template(role)
    main = pods.main_container(made)
    if main is None:
        return made
    count = role.peek("replicas")
    variables = {"NODE_NUM": str(count)} if isinstance(count, int) and count else {}
    read, path = rewritten(main, variables=variables), path_of(role, "template", main)
    say(role, read.notes(path))
    if read.launch is not None:
        launches[role.path] = read.launch
    elif (name := _program(main)) is not None:
        field = "command" if main.get("command") else "args"
        note_near(role, child(path, field), Verdict.CHANGED, f"{name} {CANNOT_SPEAK}")
    containers = [read.container if one is main else one for one in pods.containers(made)]
    return {**made, "spec": {**made["spec"], "containers": containers}}


def _program(container: Manifest) -> str | None:
    """Return DLRover's own program that a container starts; None if it starts none."""
    words = [str(word) for field in ("command", "args") for word in _listed(container.get(field))]
    found = DLROVERS.search(" ".join(words))
    return found[0] if found else None


def _others(role: Manifest) -> Manifest:
    return {name: value for name, value in role.items() if name not in SIZES}


def _todays(spec: Fields, found: Manifest) -> Manifest:
    """Put what the EasyDL form says into roles."""
    made = todays_job(found)
    for field in OLDER:
        if field in spec:
            role = ROLES_OF_OLDER.get(field, field)
            of_all = field in ("command", "image")
            where = "of roles without one" if of_all else f"as spec.replicaSpecs.{role}"
            path = child(spec.path, field)
            if of_all or not isinstance(spec.peek(field), dict):
                spec.note(path, Verdict.KEPT, where if spec.peek(field) else "empty: roles have their own")
            else:
                for name in spec.below(field).value:
                    if name in ("image", "command"):
                        spec.note(child(path, name), Verdict.KEPT, where)
    return {name: value for name, value in made.items() if name not in OLDER}


def _strategy(spec: Fields, found: Manifest) -> None:
    given = found.get("distributionStrategy")
    if isinstance(given, str) and (word := DistributionStrategy._missing_(given)):
        found["distributionStrategy"] = word.value
        if word.value != given:
            spec.keep("distributionStrategy", f"as {word.value}")


def _gang(role: Fields) -> str:
    scheduler = role.peek("BatchScheduler")
    if scheduler == Gang.VOLCANO.value:
        role.keep("BatchScheduler", "as spec.runPolicy.scheduling.gang: volcano")
        return Gang.VOLCANO.value
    if scheduler == "default":
        role.keep("BatchScheduler", "pods are placed one by one, as without it")
    return ""


def _own_master(fields: Fields, role: Manifest) -> None:
    """Leave out the image and the command of DLRover's master; resources and placement stay."""
    template = role.get("template")
    for at, container in enumerate(pods.containers(template) if isinstance(template, dict) else ()):
        words = [container.get("image"), *_listed(container.get("command")), *_listed(container.get("args"))]
        if not any("dlrover" in str(word) for word in words):
            continue
        for name in ("image", "command", "args"):
            if name in container:
                del container[name]
                path = f"{child(fields.path, 'template')}.spec.containers[{at}].{name}"
                fields.note(path, Verdict.DROPPED, ITS_MASTER, harmless=True)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _name(whole: Fields) -> str:
    """Names of plans may have dots, and more letters than those of jobs."""
    about = whole.peek("metadata")
    given = about.get("name") if isinstance(about, dict) else None
    return given if isinstance(given, str) else ""


DLROVER: Final = DLRover()
