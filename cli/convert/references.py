"""References of templates to what another operator gives its pods: rewritten to ours, or told. Pure.

Labels in selectors and fieldRefs, variables in commands and env, host names, files and objects by name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from elasticjob.api.roles import PS, WORKER
from elasticjob.api.v1alpha1.common import LABEL_INDEX, LABEL_JOB, LABEL_ROLE
from elasticjob.cli.convert.launchers.containers import list_of
from elasticjob.cli.convert.system import Conversion, Marks, Note, Source, Verdict, child, in_order
from elasticjob.kube.objects.kinds import Manifest

OURS: Final = f"{LABEL_JOB}, {LABEL_ROLE} and {LABEL_INDEX}"
NO_LABEL: Final = f"no pod here has it: pods have the labels {OURS}"
NO_ROLE: Final = f"names no role of the job: write one of its roles for {LABEL_ROLE}"
NO_VARIABLE: Final = (
    "is not set here: pods have NODE_RANK and NODE_NUM, and the script has RANK, WORLD_SIZE, LOCAL_RANK and "
    "MASTER_ADDR when elasticjob run starts it"
)
NO_HOST: Final = (
    "no pod is sure to have this name, as one that replaces another has a new one: workers meet at the job's "
    "master, and the first pod of a node is <job>-<role>-<index>.<job>"
)
NO_OBJECT: Final = (
    "only the other operator makes it: leave it out, or make it yourself; hosts are in TF_CONFIG, or are "
    "<job>-<role>-<index>.<job>"
)
FIELD: Final = re.compile(r"metadata\.(?:labels|annotations)\['([^']+)'\]")
NAMED: Final = re.compile(
    r"command|args|value|mountPath|secretName|(?:configMap|configMapRef|configMapKeyRef|secretRef|secretKeyRef)\.name"
)
"""Fields whose strings may name a host, a file or an object."""


def follow(found: Conversion, source: Source, marks: Marks) -> Conversion:
    """Return the job with the references of its templates rewritten, and a note on each."""
    spec = found.job.get("spec")
    roles = spec.get("replicaSpecs") if isinstance(spec, dict) else None
    if not isinstance(roles, dict) or not isinstance(spec, dict):
        return found
    told: dict[str, tuple[Verdict, str]] = {}
    names = source.name or "NAME", str(found.job["metadata"].get("name", ""))
    made = {role: _Reader(marks, *names, frozenset(roles), told).role(one) for role, one in roles.items()}
    notes = [note for token, verdict in told.items() for note in _notes(source, token, *verdict)]
    job = {**found.job, "spec": {**spec, "replicaSpecs": made}}
    return replace(found, job=job, notes=in_order(source, (*found.notes, *notes)) if notes else found.notes)


def strays(manifest: Manifest, marks: Marks) -> dict[str, str]:
    """Return the labels that only the other operator's pods have, and ours, in an object beside the job."""
    found = {text: marks.label(text) for _, text in _strings(manifest, "") if "/" in text}
    return {text: ours or OURS for text, ours in found.items() if ours is not None}


@dataclass
class _Reader:
    """Walks over the template of a role."""

    marks: Marks
    old: str
    """The name of the document."""
    job: str
    roles: frozenset[str]
    told: dict[str, tuple[Verdict, str]]
    labels: Mapping[str, Any] = field(default_factory=dict)
    """Those of the template itself."""
    known: frozenset[str] = frozenset()
    """Variables that the container sets itself."""

    def role(self, role: Any) -> Any:
        template = role.get("template") if isinstance(role, dict) else None
        if not isinstance(template, dict):
            return role
        about = template.get("metadata")
        labels = about.get("labels") if isinstance(about, dict) else None
        self.labels = labels if isinstance(labels, dict) else {}
        return {**role, "template": {**template, "spec": self._walk(template.get("spec"), "spec")}}

    def _walk(self, value: Any, name: str) -> Any:
        match value:
            case dict() if name == "matchLabels":
                pairs = (self._label(str(key), [one]) for key, one in value.items())
                return {key: values[0] for key, values in pairs}
            case dict() if name == "matchExpressions" and "key" in value:
                key, values = self._label(str(value["key"]), list_of(value.get("values")))
                return {**value, "key": key} | ({"values": values} if values else {})
            case dict():
                env = [one for one in list_of(value.get("env")) if isinstance(one, dict)]
                before, self.known = self.known, self.known | {str(one.get("name")) for one in env}
                made = {
                    key: self._walk(one, f"{name}.name" if key == "name" else key)
                    for key, one in value.items()
                }
                self.known = before
                return made
            case list() if name == "matchLabelKeys":
                return [self._label(str(key), [])[0] for key in value]
            case list():
                return [self._walk(one, name) for one in value]
            case str() if name == "fieldPath" and (found := FIELD.fullmatch(value)):
                key = self._label(found[1], [])[0]
                return value if key == found[1] else f"metadata.labels['{key}']"
            case str() if NAMED.fullmatch(name):
                return self._text(value)
        return value

    def _label(self, key: str, values: list[Any]) -> tuple[str, list[Any]]:
        """Return a label and its values as pods have them here."""
        ours = self.marks.label(key)
        if ours is None or key in self.labels or key == ours:
            return key, values
        now = {LABEL_JOB: [self.job] if values else [], LABEL_ROLE: [self._role(one) for one in values]}
        if not ours or "" in now.get(ours, ()):
            self.told[key] = (Verdict.CHANGED, NO_ROLE if ours else NO_LABEL)
            return key, values
        new = now.get(ours, values)
        self.told[key] = (Verdict.KEPT, f"as {ours}" + (f": {', '.join(map(str, new))}" if new else ""))
        return ours, new

    def _role(self, name: Any) -> str:
        """Return the role that takes the place of another system's; "" if none does."""
        plain = str(name).lower()
        return plain if plain in self.roles else WORKER if self.roles == {WORKER} else ""

    def _text(self, text: str) -> str:
        for pattern, ours in self.marks.variables:
            for found in list(re.finditer(rf"(?<![\w-]){pattern}\b", text)):
                word = found[0].lstrip("$({")
                if word in self.known or re.search(rf"(?<!\$)\b{word}=", text):
                    continue
                if ours:
                    text = text.replace(found[0], found[0].replace(word, ours))
                self.told[word] = (Verdict.KEPT, f"as {ours}") if ours else (Verdict.CHANGED, NO_VARIABLE)
        for pattern in self.marks.objects:
            for found in re.finditer(rf"(?<![\w/.-]){self._named(pattern)}(?![\w-])", text):
                self.told[found[0]] = (Verdict.CHANGED, NO_OBJECT)
        host = (
            rf"(?<![\w.-]){self._named(self.marks.hosts)}(?:\.[\w-]+)*(?![\w-])" if self.marks.hosts else "$^"
        )
        for found in list(re.finditer(host, text)):
            server = re.match(rf"{self._named('{job}')}-{PS}-(\d+)", found[0]) if PS in self.roles else None
            if server:
                now = f"{self.job}-{PS}-{server[1]}.{self.job}"
                text = text.replace(found[0], now)
            self.told[found[0]] = (Verdict.KEPT, f"as {now}") if server else (Verdict.CHANGED, NO_HOST)
        return text

    def _named(self, pattern: str) -> str:
        return pattern.replace("{job}", re.escape(self.old))


def _notes(source: Source, token: str, verdict: Verdict, why: str) -> Iterator[Note]:
    """Yield a note for each place of the document that has a reference."""
    word = re.compile(rf"(?<![\w.-])(?<!\w/){re.escape(token)}(?![\w-])")
    if source.text:
        lines = source.text.splitlines()
        found = [
            Note(source.first + at, token, verdict, why) for at, line in enumerate(lines) if word.search(line)
        ]
    else:
        found = [
            Note(source.line(path), path if path.endswith(f"[{token}]") else f"{path} {token}", verdict, why)
            for path, text in _strings(source.manifest, "")
            if not path.startswith("metadata") and word.search(text)
        ]
    yield from found or [Note(None, token, verdict, why)]


def _strings(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """Find the strings of a document, names of members among them, by their paths."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for name, member in value.items():
            yield child(path, name), str(name)
            yield from _strings(member, child(path, name))
    elif isinstance(value, list):
        for at, member in enumerate(value):
            yield from _strings(member, child(path, at))
