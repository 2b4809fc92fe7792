"""Parts that most systems share: the metadata of a job, and pod templates as templates of roles."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from elasticjob.api.core import POD_TEMPLATE_SPEC
from elasticjob.api.core.shape import without_unknown
from elasticjob.api.v1alpha1.checks.common import DNS_LABEL_OF_A_SERVICE, LONGEST_NAME
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.cli.convert.system import ANEW, Fields, Verdict, child
from elasticjob.controllers.parts.names import FRAMEWORK
from elasticjob.kube.objects.kinds import Kind, Manifest

WRITTEN_BY_THE_SERVER: Final = (
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "generation",
    "managedFields",
    "resourceVersion",
    "selfLink",
    "uid",
)
LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
ROOM: Final = len("-worker-99-999")
"""Letters that names of pods have beside the name of their job."""
REPLACED: Final = (
    "a node that ended is not restarted in place: restartPolicy of its role says when it is replaced"
)


def job(whole: Fields, spec: Manifest, *, framework: str = "") -> Manifest:
    """Return an ElasticJob with the metadata of the document; status, kind and version are read, too."""
    made = build(whole, ELASTICJOB, spec)
    if framework:
        about = made["metadata"]
        about["annotations"] = {**about.get("annotations", {}), FRAMEWORK: framework}
    return made


def build(whole: Fields, kind: Kind[Any], spec: Manifest, *, name: str = "") -> Manifest:
    """Return an object of a kind of ours with the metadata of the document."""
    for field, now in (("apiVersion", kind.api_version), ("kind", kind.name)):
        whole.keep(field, "" if whole.peek(field) == now else f"as {now}")
    whole.drop("status", ANEW, harmless=True)
    return {
        "apiVersion": kind.api_version,
        "kind": kind.name,
        "metadata": metadata(whole.below("metadata"), name),
        "spec": without_empty(spec),
    }


def metadata(fields: Fields, name: str = "") -> Manifest:
    """Return the name, the namespace, labels and annotations of a document; jobs can have the name."""
    for field in WRITTEN_BY_THE_SERVER:
        fields.drop(field, ANEW, harmless=True)
    found: Manifest = {}
    given = fields.peek("name")
    if isinstance(given, str) and given:
        found["name"] = name or job_name(given)
        fields.keep("name") if found["name"] == given else fields.change("name", f"is {found['name']} now")
    elif isinstance(fields.peek("generateName"), str):
        found["generateName"] = fields.keep("generateName")
    else:
        found["name"] = name or "converted"
        fields.note(child(fields.path, "name"), Verdict.CHANGED, f"is absent: {found['name']} now")
    found["namespace"] = fields.text("namespace")
    found["labels"] = _texts(fields.below("labels"))
    found["annotations"] = _texts(fields.below("annotations"))
    fields.drop("ownerReferences", "the ElasticJob has no owner: delete it with kubectl", harmless=False)
    fields.drop("finalizers", "they are those of another operator", harmless=True)
    return without_empty(found)


def _texts(fields: Fields) -> Manifest:
    fields.drop(LAST_APPLIED, ANEW, harmless=True)
    found = {}
    for name in fields.value:
        if name == LAST_APPLIED:
            continue
        if (text := as_text(fields.peek(name))) is not None:
            found[name] = text
            fields.keep(name, f"as the string {text!r}")
        else:
            found[name] = fields.text(name)
    return found


def as_text(value: Any) -> str | None:
    """Return a number or a boolean as a string; None for values of other types."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else None


def _as_texts(role: Fields, path: str, pod_template: Manifest) -> None:
    """Make strings of numbers and booleans where a template has strings: quotes are often left out."""
    for where, texts in _maps_of_texts(path, pod_template):
        for name, value in texts.items():
            if (text := as_text(value)) is not None:
                texts[name] = text
                role.note(child(where, name), Verdict.KEPT, f"as the string {text!r}")


def _maps_of_texts(path: str, pod_template: Manifest) -> Iterator[tuple[str, Manifest]]:
    about, pod = pod_template.get("metadata"), pod_template.get("spec")
    found: list[tuple[str, Any]] = []
    if isinstance(about, dict):
        found += [(f"{path}.metadata.{name}", about.get(name)) for name in ("labels", "annotations")]
    if isinstance(pod, dict):
        found.append((f"{path}.spec.nodeSelector", pod.get("nodeSelector")))
    for at, container in enumerate(containers(pod_template)):
        env = container.get("env")
        for place, one in enumerate(env if isinstance(env, list) else ()):
            found.append((f"{path}.spec.containers[{at}].env[{place}]", one))
    yield from ((where, texts) for where, texts in found if isinstance(texts, dict))


def job_name(given: str, room: int = ROOM) -> str:
    """Return the nearest name from which services and pods can be named."""
    plain = re.sub("[^a-z0-9]+", "-", given.lower()).strip("-")
    if DNS_LABEL_OF_A_SERVICE.fullmatch(plain) is None:
        plain = f"job-{plain}".strip("-")
    return plain[: LONGEST_NAME - room].rstrip("-")


def template(role: Fields, name: str = "template") -> Manifest:
    """Return a pod template without fields that Kubernetes does not know; each of them becomes a note."""
    if not isinstance(role.peek(name), dict):
        role.below(name)
        return {}
    found, unknown = without_unknown(role.keep(name), POD_TEMPLATE_SPEC)
    here = child(role.path, name)
    for steps, why in unknown:
        path = here
        for step in steps:
            path = child(path, step)
        plain = steps[0] in ("apiVersion", "kind")
        role.note(path, Verdict.DROPPED, "a template has none" if plain else why, harmless=plain)
    about, pod = found.get("metadata"), found.get("spec")
    _as_texts(role, here, found)
    if isinstance(about, dict):
        found["metadata"] = {key: value for key, value in about.items() if key not in WRITTEN_BY_THE_SERVER}
    if isinstance(pod, dict) and "restartPolicy" in pod:
        found["spec"] = {key: value for key, value in pod.items() if key != "restartPolicy"}
        role.note(f"{here}.spec.restartPolicy", Verdict.DROPPED, REPLACED, harmless=True)
    return without_empty(found)


def containers(pod_template: Manifest) -> list[Manifest]:
    """Return the containers of a template that are objects. Shared with it."""
    spec = pod_template.get("spec")
    found = spec.get("containers") if isinstance(spec, dict) else None
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def main_container(pod_template: Manifest) -> Manifest | None:
    """Return the container called main, else the first; None if there is none."""
    found = containers(pod_template)
    return next((one for one in found if one.get("name") == "main"), found[0] if found else None)


def main_first(pod_template: Manifest, names: Iterable[str]) -> Manifest:
    """Return a template whose first container is the one that a system takes for the main one, by its names.

    The main container of a role is the one called main, else the first.
    """
    spec, found = pod_template.get("spec"), containers(pod_template)
    meant = next((one for name in names for one in found if one.get("name") == name), None)
    if not isinstance(spec, dict) or meant is None or meant is found[0]:
        return pod_template
    return {
        **pod_template,
        "spec": {**spec, "containers": [meant, *(one for one in found if one is not meant)]},
    }


def without_empty(fields: Manifest) -> Manifest:
    """Return the fields without None and empty strings, lists and objects."""
    return {name: value for name, value in fields.items() if value not in (None, "", [], {})}
