"""ElasticJobs of DLRover and EasyDL, whose fields are nearly those of this operator. Pure."""

from __future__ import annotations

import re
import types
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any, Final, Union, get_args, get_origin

from pydantic import ValidationError

from elasticjob.api.resources import Resources
from elasticjob.api.roles import MASTER, MASTER_ALIAS, is_master
from elasticjob.api.v1alpha1.checks.common import parse_amounts
from elasticjob.api.v1alpha1.checks.elasticjob import least_needs
from elasticjob.api.v1alpha1.checks.templates import templates_have_their_shape
from elasticjob.api.v1alpha1.elasticjob import (
    ELASTICJOB,
    DistributionStrategy,
    ElasticJobSpec,
    Gang,
    ReplicaSpec,
)
from elasticjob.api.v1alpha1.older import OLDER_ROLES, todays_job
from elasticjob.cli.convert import pods, training
from elasticjob.cli.convert.launchers.containers import rewritten
from elasticjob.cli.convert.launchers.launch import Launch
from elasticjob.cli.convert.system import Fields, Note, Verdict, child
from elasticjob.cli.convert.training import node_fields, note_near, within
from elasticjob.kube.crd.model import Part
from elasticjob.kube.objects.kinds import Manifest

OF_ALL_ROLES: Final = ("command", "image")
OLDER: Final = (*OF_ALL_ROLES, *(field for field, _ in OLDER_ROLES))
"""Fields of the EasyDL form, which todays_job reads."""
WITHOUT_EFFECT: Final = {
    "enableElasticScheduling": "the range minReplicas to maxReplicas of a role makes it elastic",
    "enableDynamicSharding": "the script asks for shards: docs/shards.md",
}
BY_HEARTBEAT: Final = "without effect: the master notices lost nodes by heartbeat"
ITS_MASTER: Final = "it starts DLRover's master: the operator has its own image of the job's master"
CANNOT_SPEAK: Final = "cannot speak to this job's master: write a script of your own (docs/from-dlrover.md)"
DLROVERS: Final = re.compile(r"dlrover\.(?:trainer|python)(?:\.\w+)+")
OLDER_COUNT: Final = "WORKER_NUM"
COUNTS: Final = ("NODE_NUM", OLDER_COUNT)
"""Variables with the number of workers; the second is that of early releases, and not set here."""
NO_COUNT: Final = f"{OLDER_COUNT} is not set here: write NODE_NUM, the number of nodes"
SIZES: Final = ("replicas", "minReplicas", "maxReplicas")
Template = Callable[[Fields], Manifest]
"""Reads the field template of a role."""


def job(whole: Fields) -> Manifest:
    """Return an ElasticJob in today's fields."""
    spec = whole.below("spec")
    made = pods.job(whole, job_spec(spec))
    _raise_limits(spec, made)
    return made


def job_spec(spec: Fields) -> Manifest:
    """Return the spec of an ElasticJob in today's fields."""
    launches: dict[str, Launch] = {}
    found = fields_of(spec, ElasticJobSpec, lambda role: _template(role, launches))
    for field, why in WITHOUT_EFFECT.items():
        found.pop(field, None)
        spec.drop(field, why)
    if "distributionStrategy" not in found and "distribution_strategy" in spec:
        found["distributionStrategy"] = spec.text("distribution_strategy", "as distributionStrategy")
    _strategy(spec, found)
    if isinstance(found.get("replicaSpecs"), dict):
        members = spec.below("replicaSpecs")
        found["replicaSpecs"] = {
            _role_name(members, name): _role(members.below(name), name, role, launches)
            for name, role in found["replicaSpecs"].items()
        }
        if any(_gang(members.below(name)) for name in members.value):
            scheduling = _object(_object(found, "runPolicy"), "scheduling")
            scheduling.setdefault("gang", Gang.VOLCANO.value)
    _first_form(spec, found, launches)
    for launch in launches.values():
        found |= {name: value for name, value in node_fields(launch).items() if name not in found}
    return _with_images(spec, _todays(spec, found))


def _first_form(spec: Fields, found: Manifest, launches: dict[str, Launch]) -> None:
    """Read roles beside each other in the spec, the form of the first releases."""
    for field, role in OLDER_ROLES:
        part = spec.below(field) if field in spec else None
        if part is not None and "template" in part:
            found.pop(field, None)
            spec.below("replicaSpecs")  # which says so if it is no object
            roles = _object(found, "replicaSpecs")
            read = fields_of(part, ReplicaSpec, lambda one: _template(one, launches))
            roles[role] = _role(part, role, read, launches)


def _object(fields: Manifest, name: str) -> Manifest:
    """Return a member that is an object; one of another kind is replaced."""
    if not isinstance(fields.get(name), dict):
        fields[name] = {}
    found: Manifest = fields[name]
    return found


def _role_name(members: Fields, name: str) -> str:
    """Return a role's name as roles are written here: PS is ps."""
    now = name.lower().replace("_", "-")
    if now != name:
        members.below(name)  # its members are read one by one
        members.keep(name, f"as role {now}")
    return now


def _role(fields: Fields, name: str, role: Any, launches: dict[str, Launch]) -> Any:
    if not isinstance(role, dict):
        return role
    fields.drop("restartTimeout", BY_HEARTBEAT, harmless=True)
    rest = {field: value for field, value in role.items() if field != "restartTimeout"}
    if name in (MASTER, MASTER_ALIAS):
        _own_master(fields, rest)
    if (launch := launches.get(fields.path)) is None:
        return rest
    sizes = {**launch.sizes(), **{field: rest.pop(field) for field in SIZES if type(rest.get(field)) is int}}
    return {**within(fields, sizes), **rest}


def _template(role: Fields, launches: dict[str, Launch]) -> Manifest:
    """Return the template of a role with elasticjob run in place of a launcher, and remember the launch."""
    made = pods.template(role)
    main = pods.main_container(made)
    if main is None:
        return made
    count = role.peek("replicas")
    variables = dict.fromkeys(COUNTS, str(count)) if isinstance(count, int) and count else {}
    read, path = rewritten(main, variables=variables), training.path_of(role, "template", main)
    training.say(role, read.notes(path))
    if read.launch is not None:
        launches[role.path] = read.launch
    where = child(path, "command" if main.get("command") else "args")
    if OLDER_COUNT in " ".join(_words(read.container, "command", "args")):
        training.say(role, [Note(None, f"{where} ${OLDER_COUNT}", Verdict.CHANGED, NO_COUNT)])
    if read.launch is None and (name := DLROVERS.search(" ".join(_words(main, "command", "args")))):
        note_near(role, where, Verdict.CHANGED, f"{name[0]} {CANNOT_SPEAK}")
    containers = [read.container if one is main else one for one in pods.containers(made)]
    return {**made, "spec": {**made["spec"], "containers": containers}}


def _words(container: Manifest, *fields: str) -> Iterator[str]:
    for field in fields:
        value = container.get(field)
        yield from map(str, value if isinstance(value, list) else [value or ""])


def _strategy(spec: Fields, found: Manifest) -> None:
    given = found.get("distributionStrategy")
    if not isinstance(given, str):
        return
    words = [word.value for word in DistributionStrategy]
    near = get_close_matches(given, words, 1, 0.85)
    if (word := DistributionStrategy._missing_(given)) is not None:
        found["distributionStrategy"] = word.value
        if word.value != given:
            spec.keep("distributionStrategy", f"as {word.value}")
    elif near:
        found["distributionStrategy"] = near[0]
        spec.change("distributionStrategy", f"is {near[0]} now, which is probably meant")


def _gang(role: Fields) -> bool:
    """Whether a role asks for Volcano."""
    scheduler = role.peek("BatchScheduler")
    if scheduler == "default":
        role.keep("BatchScheduler", "pods are placed one by one, as without it")
    if scheduler != Gang.VOLCANO.value:
        return False
    role.keep("BatchScheduler", "as spec.runPolicy.scheduling.gang: volcano")
    return True


def _own_master(fields: Fields, role: Manifest) -> None:
    """Leave out the image and the command of DLRover's master; resources and placement stay."""
    template = role.get("template")
    for at, container in enumerate(pods.containers(template) if isinstance(template, dict) else ()):
        if not any("dlrover" in word for word in _words(container, "image", "command", "args")):
            continue
        for name in ("image", "command", "args"):
            if name in container:
                del container[name]
                path = f"{child(fields.path, 'template')}.spec.containers[{at}].{name}"
                fields.note(path, Verdict.DROPPED, ITS_MASTER, harmless=True)


def _todays(spec: Fields, found: Manifest) -> Manifest:
    """Move the fields of the EasyDL form into roles."""
    made = todays_job(found)
    for field in OF_ALL_ROLES:
        if field in spec:
            spec.keep(field, "of roles without one" if spec.peek(field) else "empty: roles have their own")
    for field, role in OLDER_ROLES:
        if field in spec:
            part = spec.below(field)
            for name in OF_ALL_ROLES:
                part.keep(name, f"as spec.replicaSpecs.{role}")
    return {name: value for name, value in made.items() if name not in OLDER}


def _with_images(spec: Fields, made: Manifest) -> Manifest:
    """Give our image to roles without one."""
    roles = made.get("replicaSpecs")
    for role, one in roles.items() if isinstance(roles, dict) else ():
        template = one.get("template") if isinstance(one, dict) else None
        if isinstance(template, dict) and not is_master(role) and pods.containers(template):
            main = pods.main_container(template)
            if main is pods.containers(template)[0]:
                older = (field for field, its in OLDER_ROLES if its == role and field in spec)
                written = next(older, f"replicaSpecs.{role}")
                path = f"{spec.path}.{written}.template.spec.containers[0]"
                one["template"] = training.with_main(template, training.with_image(spec, path, main))
    return made


def _raise_limits(spec: Fields, made: Manifest) -> None:
    """Raise resourceLimits to the requests of the least sizes: DLRover takes lower ones."""
    try:
        given = ELASTICJOB.convert(made)
    except ValidationError:
        return
    if not given.spec.resource_limits or any(templates_have_their_shape(given)):
        return
    limits, needs = parse_amounts(given.spec.resource_limits), least_needs(given)
    if limits is None or needs is None:
        return
    total = sum(needs.values(), Resources({}))
    for excess in total.over(limits):
        made["spec"]["resourceLimits"][excess.name] = str(excess.wanted)
        path = child(child(spec.path, "resourceLimits"), excess.name)
        why = f"{excess.limit} is less than the least sizes need: is {excess.wanted} now"
        spec.note(path, Verdict.CHANGED, why)


def fields_of(fields: Fields, model: type[Part], template: Template = pods.template) -> Manifest:
    """Return the fields that a model has, each kept; other fields stay unread."""
    return {name: _value(fields, name, kind, template) for name, kind in _members(model) if name in fields}


def _value(fields: Fields, name: str, kind: Any, template: Template) -> Any:
    value, (holder, part) = fields.peek(name), _shape(kind)
    if isinstance(value, dict) and value and name == "template":
        return template(fields)
    if part is None or not value or not isinstance(value, list if holder is list else dict):
        return fields.keep(name)
    if holder is list:
        known = all(isinstance(one, dict) for one in value)
        return [fields_of(each, part, template) for each in fields.each(name)] if known else fields.keep(name)
    below = fields.below(name)
    if holder is dict:
        return {key: _value(below, key, part, template) for key in below.value}
    return fields_of(below, part, template)


def _members(model: type[Part]) -> Iterator[tuple[str, Any]]:
    """Find the fields of a model by the names that manifests have."""
    for name, field in model.model_fields.items():
        yield field.alias or name, field.annotation


def _shape(kind: Any) -> tuple[Any, type[Part] | None]:
    """Return the model in a type, and what holds it: a dict, a list, or the type itself."""
    for one in _alternatives(kind):
        if isinstance(one, type) and issubclass(one, Part):
            return one, one
        if get_origin(one) in (dict, Mapping, list) and (part := _shape(get_args(one)[-1])[1]):
            return list if get_origin(one) is list else dict, part
    return None, None


def _alternatives(kind: Any) -> tuple[Any, ...]:
    """Return the types of a union, without their annotations."""
    if hasattr(kind, "__metadata__"):
        return _alternatives(kind.__origin__)
    if get_origin(kind) in (Union, types.UnionType):
        return tuple(one for each in get_args(kind) for one in _alternatives(each))
    return (kind,)
