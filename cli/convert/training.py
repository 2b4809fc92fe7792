"""The role that trains: its sizes, and its pod template with elasticjob run as the launcher. Pure."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from elasticjob.cli.convert import pods
from elasticjob.cli.convert.launchers.containers import rewritten
from elasticjob.cli.convert.launchers.launch import Launch, wrong
from elasticjob.cli.convert.system import EACH, Fields, Note, Verdict, child
from elasticjob.client.objects import IMAGE, role_spec
from elasticjob.kube.objects.kinds import Manifest
from elasticjob.trainer.agent.settings import stated_count

GPU: Final = "nvidia.com/gpu"
BY_THE_IMAGE: Final = (
    "is absent: if the image's own command starts a launcher, write elasticjob run with the script as command"
)
NO_LAUNCHER: Final = (
    "if it starts a launcher in the end, call elasticjob run there; else each node runs by itself"
)
FOR_THE_ENTRYPOINT: Final = (
    "the image's command reads them: write elasticjob run and the script there; else each node is alone"
)
NEEDS_MPI: Final = (
    "which is no Python script: only MPI starts it with its ranks. Keep the job as it is, or write a script "
    "that calls torch.distributed"
)
ONE_TEMPLATE: Final = "there is no special first pod: all workers have one template, which has another"
PER_NODE: Final = "as --nproc-per-node of elasticjob run, where the command says none"
NO_IMAGE: Final = f"is absent: {IMAGE}, which has the agent, Python and torch; write yours"


@dataclass(frozen=True)
class Training:
    """A pod template, and the launch that its main container asks for; None where it calls no launcher."""

    template: Manifest
    launch: Launch | None = None

    @property
    def container(self) -> Manifest:
        """The main container, empty if there is none."""
        return next(iter(pods.containers(self.template)), {})


def training_template(
    role: Fields,
    names: Iterable[str] = (),
    *,
    name: str = "template",
    defaults: Launch | None = None,
    plainly: bool = False,
    prepared: Callable[[Manifest], Manifest] = lambda container: container,
    variables: Mapping[str, str] | None = None,
) -> Training:
    """Return the template of a role whose main container, one of `names` or the first, trains.

    `plainly`: elasticjob run also starts Python without a launcher, as the system gives it a rank.
    `prepared`: adds to the container as the system does. `variables`: those that it sets in pods.
    """
    made = pods.main_first(pods.template(role, name), names)
    found = pods.containers(made)
    if not found:
        return Training(made)
    path = path_of(role, name, found[0])
    given, counted = prepared(found[0]), _with_count(defaults, found[0])
    read = rewritten(given, plainly=plainly, defaults=counted, variables=variables)
    if "command" not in found[0]:
        read = replace(read, field="args")
    say(role, read.notes(path))
    if read.launch is None:
        _without_launcher(role, path, found[0], ranked=plainly)
    container = with_image(role, path, read.container)
    return Training(with_main(made, container), read.launch)


def members(fields: Fields, name: str, roles: Container[str]) -> dict[str, Fields]:
    """Return the objects of a map that are roles, by their capitalized keys, to be read one by one."""
    whole = fields.below(name)
    keys = {key.capitalize(): key for key in whole.value if isinstance(whole.peek(key), dict)}
    return {role: whole.below(key) for role, key in keys.items() if role in roles}


def say(fields: Fields, notes: Iterable[Note]) -> None:
    """Add notes of flags, whose lines are those of the fields that they are in."""
    for note in notes:
        line = fields.source.line(note.field.partition(" ")[0])
        fields.log.notes[note.field] = replace(note, line=line)


def with_image(fields: Fields, path: str, container: Manifest) -> Manifest:
    """Return a container with an image: ours, if it has none."""
    if container.get("image"):
        return container
    note_near(fields, child(path, "image"), Verdict.CHANGED, NO_IMAGE)
    return {**container, "image": IMAGE}


def pod_of(template: Manifest) -> Manifest:
    """Return the spec of a pod template, empty if it has none."""
    spec = template.get("spec")
    return spec if isinstance(spec, dict) else {}


def with_main(template: Manifest, container: Manifest) -> Manifest:
    """Return a template with another main container."""
    spec = pod_of(template)
    first: Manifest = {
        name: container[name] for name in ("name", "image", "command", "args") if name in container
    }
    made: Manifest = {**first, **container}
    return {**template, "spec": {**spec, "containers": [made, *pods.containers(template)[1:]]}}


def compare(fields: Fields, one: Manifest, other: Manifest) -> None:
    """Add a note if pods of one role have had another template than it has."""
    if paths := sorted({*missing(one, other), *missing(other, one)}):
        here = child(fields.path, "template")
        for path in [each for each in fields.log.notes if each.startswith(f"{here}.")]:
            del fields.log.notes[path]  # of a template that is not in the job
        fields.note(here, Verdict.CHANGED, f"{ONE_TEMPLATE} {', '.join(paths)}")


def missing(template: Manifest, other: Manifest) -> list[str]:
    """Return the fields of a pod template, by their paths, that another one has not, or has otherwise."""
    mine, theirs = _flat(template), _flat(other)
    return [path for path, value in mine.items() if not _holds(theirs.get(path), value)]


def _flat(template: Manifest) -> Manifest:
    main, *others = pods.containers(template) or [{}]
    pod = {**pod_of(template), "containers": others}
    found = {"metadata": template.get("metadata")} | {f"spec.{name}": one for name, one in pod.items()}
    own = {f"spec.containers[0].{name}": one for name, one in main.items() if name != "name"}
    return pods.without_empty({**found, **own})


def _holds(theirs: Any, value: Any) -> bool:
    """Whether a value is the same, or has all members of a list of objects, such as env."""
    if isinstance(theirs, list) and isinstance(value, list) and isinstance(value[0], dict):
        return all(each in theirs for each in value)
    return bool(theirs == value)


def role_of(found: Training, sizes: Mapping[str, Any], **more: Any) -> Manifest:
    """Return the spec of a role: sizes that are in order (`within`), and the template."""
    return role_spec(found.template, **sizes, **more)


def order_sizes(sizes: Mapping[str, Any]) -> dict[str, Any]:
    """Return sizes of which the least and the most hold the number, without those that are not given."""
    found = {name: size for name, size in sizes.items() if size is not None}
    least, most = found.get("minReplicas"), found.get("maxReplicas")
    if least is not None and most is not None and least > most:
        found["maxReplicas"] = most = least
    if "replicas" in found:
        found["replicas"] = max(found["replicas"], least or 0)
        found["replicas"] = found["replicas"] if most is None else min(found["replicas"], most)
    return found


def within(role: Fields, sizes: Mapping[str, Any], *beside: Fields) -> dict[str, Any]:
    """Return sizes in order, with a note on each that changes, where it was read: in `role` or `beside`."""
    found = order_sizes(sizes)
    for name in ("replicas", "maxReplicas"):
        if sizes.get(name) is not None and found[name] != sizes[name]:
            why = f"is {found[name]} now: {sizes[name]} is not within minReplicas and maxReplicas"
            for fields in [each for each in (role, *beside) if name in each] or [role]:
                note_near(fields, child(fields.path, name), Verdict.CHANGED, why)
    return found


def node_fields(launch: Launch | None) -> Manifest:
    """Return the fields of a job's spec for a launcher's flags: nodeCheck and nodeUnit."""
    if launch is None:
        return {}
    found: Manifest = {"nodeCheck": launch.check} if launch.check else {}
    return {**found, "nodeUnit": launch.unit} if launch.unit > 1 else found


def processes(fields: Fields, *names: str) -> str:
    """Return the processes of each node by the first of these fields that says them, "" if none does."""
    found = ""
    for name in names:
        value = fields.peek(name)
        try:
            stated_count(str(value))
        except ValueError:
            if value is not None:
                fields.drop(name, wrong(str(value), "--nproc-per-node NUMBER, or auto for all GPUs"))
            continue
        fields.keep(name, PER_NODE)
        if str(value).isdecimal() and (note := fields.log.notes.get(child(fields.path, name))):
            fields.log.notes[note.field] = replace(note, sizes=((EACH, int(value)),))
        found = found or str(value)
    return found


def devices(container: Mapping[str, Any]) -> int:
    """Return how many GPUs a container asks for."""
    resources = container.get("resources")
    kinds = [resources.get(kind) for kind in ("limits", "requests")] if isinstance(resources, dict) else []
    amounts = [kind.get(GPU) for kind in kinds if isinstance(kind, dict)]
    return next((int(str(each)) for each in amounts if str(each).isdecimal()), 0)


def _with_count(defaults: Launch | None, container: Mapping[str, Any]) -> Launch | None:
    """Return the defaults with a number for auto: a process for each GPU, else one."""
    if defaults is None or defaults.processes not in ("", "auto"):
        return defaults
    count = devices(container)
    return replace(defaults, processes=str(count) if count > 1 else "")


def _without_launcher(role: Fields, path: str, container: Mapping[str, Any], *, ranked: bool) -> None:
    """Warn of a container without a launcher, if its system gives each node a rank (`ranked`)."""
    if not ranked:
        return
    if not container.get("command") and not container.get("args"):
        note_near(role, child(path, "command"), Verdict.CHANGED, BY_THE_IMAGE)
    else:
        field = "command" if container.get("command") else "args"
        why = NO_LAUNCHER if field == "command" else FOR_THE_ENTRYPOINT
        note_near(role, child(path, field), Verdict.CHANGED, why)


def note_near(fields: Fields, path: str, verdict: Verdict, why: str, *, harmless: bool = False) -> None:
    """Add a note on a field that may be absent: its line is then that of the nearest parent."""
    line, place = None, path
    while line is None and place:
        line, place = fields.source.line(place), place[: max(place.rfind("."), place.rfind("["), 0)]
    fields.log.notes[path] = Note(line, path, verdict, why, harmless)


def path_of(role: Fields, name: str, container: Mapping[str, Any]) -> str:
    """Return the path of a container where it was written."""
    template = role.peek(name)
    spec = template.get("spec") if isinstance(template, dict) else None
    written = spec.get("containers") if isinstance(spec, dict) else None
    listed = written if isinstance(written, list) else []
    called = [each.get("name") if isinstance(each, dict) else None for each in listed]
    at = called.index(container.get("name")) if container.get("name") in called else 0
    return f"{child(role.path, name)}.spec.containers[{at}]"
