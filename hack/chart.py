"""The Helm chart `charts/elasticjob`: the manifests of `config/`, with the chart's values spliced in.

A splice replaces what a pattern finds in a manifest by a template. It must find something, so a change of
`config/` that would leave a value without effect fails `make generate`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from elasticjob import __version__

ROOT: Final = Path(__file__).parent.parent
CONFIG: Final = ROOT / "config"
CHART: Final = ROOT / "charts" / "elasticjob"
HEADER: Final = "# Made by `make generate` from config and hack/chart.py; do not edit.\n"
LEFT_OUT: Final = "operator/namespace.yaml"
"""Helm makes the namespace of a release (--create-namespace)."""
COMPONENTS: Final = ("brain", "diengine")
NAMESPACE: Final = "elasticjob-system"
KEEP: Final = "  annotations:\n    helm.sh/resource-policy: keep # every job would go with its definition\n"
SUFFIX: Final = "{{ with .Values.watchNamespace }}-{{ . }}{{ end }}"
"""Cluster-wide objects of operators that work in one namespace each have different names."""


@dataclass(frozen=True)
class Value:
    """One entry of values.yaml, and its part of values.schema.json."""

    about: str
    default: Any
    schema: Mapping[str, Any] = field(default_factory=dict)


def outputs() -> Mapping[Path, Callable[[], str]]:
    """Return the chart's files: path → content."""
    return {
        CHART / "Chart.yaml": chart_text,
        CHART / "values.yaml": values_text,
        CHART / "values.schema.json": schema_text,
        **{CHART / "templates" / name: lambda name=name: template(name) for name in sources()},  # type: ignore[misc]
    }


def sources() -> list[str]:
    """Return the manifests of `config/` that the chart contains, by their paths there."""
    listed: list[str] = yaml.safe_load((CONFIG / "kustomization.yaml").read_text())["resources"]
    parts = [f"{part}/{name}" for part in COMPONENTS for name in resources_of(part)]
    return [*(name for name in listed if name != LEFT_OUT), *parts]


def resources_of(part: str) -> list[str]:
    """Return the manifests of a component of `config/`."""
    found: list[str] = yaml.safe_load((CONFIG / part / "kustomization.yaml").read_text())["resources"]
    return found


def chart_text() -> str:
    """Return Chart.yaml; the chart and the operator have one version."""
    chart = {
        "apiVersion": "v2",
        "name": "elasticjob",
        "description": "The operator of ElasticJobs: distributed training that grows, shrinks and survives",
        "type": "application",
        "version": __version__,
        "appVersion": __version__,
    }
    return HEADER + yaml.safe_dump(chart, sort_keys=False, width=120)


def values() -> Mapping[str, Value]:
    """Return the chart's values; defaults that `config/` has are read there."""
    spec, container = deployed("operator")
    image = {"repository": container["image"], "tag": "", "pullPolicy": container["imagePullPolicy"]}
    text, flag, count = {"type": "string"}, {"type": "boolean"}, {"type": "integer", "minimum": 1}
    parts = {
        "repository": text | {"minLength": 1},
        "tag": text,
        "pullPolicy": {"enum": ["Always", "IfNotPresent", "Never"]},
    }
    return {
        "image": Value(
            "The operator's image. Without a tag, that of the chart's version.", image, members(parts)
        ),
        "trainerImage": Value(
            f"The image of masters whose job names none; empty means elasticjob/trainer:{__version__}.",
            "",
            text,
        ),
        "replicas": Value(
            "Operators that serve webhooks; one of them at a time reconciles.",
            spec["replicas"],
            count,
        ),
        "resources": Value(
            "Requests and limits of each operator.", container["resources"], {"type": "object"}
        ),
        "watchNamespace": Value(
            "The only namespace whose jobs are run; empty means the whole cluster.",
            "",
            text | {"maxLength": 63},
        ),
        "scrapers": Value(
            "Labels of the namespaces whose pods may read the metrics of masters, as in\n"
            "kubernetes.io/metadata.name: monitoring. Empty: a job's own pods alone reach its master.",
            {},
            {"type": "object", "additionalProperties": text},
        ),
        "gangScheduler": Value(
            "The schedulerName of pods in gangs of scheduler-plugins, where that is a second scheduler.",
            "",
            text,
        ),
        "brain": Value(
            "Brain, which sizes jobs in cluster mode by the history of earlier ones (docs/brain.md).\n"
            "`secret` names a Secret with `key` and `reading-token`, and, where `postgresql` is true,\n"
            "`database` (a URL): several replicas need that. Otherwise SQLite is kept on a volume.\n"
            "`share` is fulfilment or goodput: the cluster is shared among jobs whose workers have a range.\n"
            "`source` is masters, none, or prometheus, whose URL is `prometheus`.",
            brain_values(),
            members(
                {
                    "enabled": flag,
                    "image": members({name: parts[name] for name in ("repository", "tag")}),
                    "replicas": count,
                    "secret": text | {"minLength": 1},
                    "postgresql": flag,
                    "storage": members({"size": text | {"minLength": 1}, "className": text}),
                    "share": {"enum": ["none", "fulfilment", "goodput"]},
                    "source": {"enum": ["masters", "prometheus", "none"]},
                    "prometheus": text,
                    "resources": {"type": "object"},
                }
            ),
        ),
        "diServer": Value(
            "di-server, which DIJobs of DI-engine need (docs/dijob.md). `secret` names a Secret with `key`,\n"
            "by which pods get tokens that are bound to their job; empty: whoever reaches it may call.",
            di_server_values(),
            members(
                {
                    "enabled": flag,
                    "replicas": count,
                    "secret": text,
                    "localPorts": flag,
                    "resources": {"type": "object"},
                }
            ),
        ),
        "crds": Value(
            "Whether this release brings the CRDs, and the rights on jobs of the cluster's roles view, edit\n"
            "and admin. One release of a cluster does. The CRDs stay when it is uninstalled.",
            True,
            flag,
        ),
    }


def brain_values() -> Mapping[str, Any]:
    """Return the values of Brain; defaults that `config/` has are read there."""
    spec, container = deployed("brain")
    claim = yaml.safe_load((CONFIG / "brain" / "claim.yaml").read_text())["spec"]
    return {
        "enabled": False,
        "image": {"repository": container["image"], "tag": ""},
        "replicas": spec["replicas"],
        "secret": "elasticjob-brain",
        "postgresql": False,
        "storage": {"size": claim["resources"]["requests"]["storage"], "className": ""},
        "share": "none",
        "source": "masters",
        "prometheus": "",
        "resources": container["resources"],
    }


def di_server_values() -> Mapping[str, Any]:
    """Return the values of di-server; defaults that `config/` has are read there."""
    spec, container = deployed("diengine")
    return {
        "enabled": False,
        "replicas": spec["replicas"],
        "secret": "",
        "localPorts": False,
        "resources": container["resources"],
    }


def deployed(folder: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the spec of the Deployment in a folder of `config/`, and its only container."""
    spec = yaml.safe_load((CONFIG / folder / "deployment.yaml").read_text())["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    return spec, container


def values_text() -> str:
    """Return values.yaml."""
    return HEADER + "".join(described(name, value) for name, value in values().items())


def described(name: str, value: Value) -> str:
    """Return one entry of values.yaml."""
    about = "".join(f"# {line}\n" for line in value.about.splitlines())
    return "\n" + about + yaml.safe_dump({name: value.default}, sort_keys=False)


def schema_text() -> str:
    """Return values.schema.json, by which Helm refuses values that are not there."""
    properties = {
        name: {"description": value.about.replace("\n", " "), **value.schema}
        for name, value in values().items()
    }
    draft = {"$schema": "https://json-schema.org/draft-07/schema#"}
    return json.dumps(draft | members(properties | {"global": {"type": "object"}}), indent=2) + "\n"


def members(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of an object with these properties and no others."""
    return {"type": "object", "additionalProperties": False, "properties": dict(properties)}


def template(name: str) -> str:
    """Return the template of one manifest of `config/`. Raises ValueError if a splice finds nothing."""
    text = (CONFIG / name).read_text()
    if "{{" in text:
        raise ValueError(f"config/{name} contains {{{{, which Helm takes for a template")
    folder = name.partition("/")[0]
    for pattern, new in (*SPLICES.get(folder, ()), *SPLICES.get(name, ())):
        text, count = re.subn(pattern, new, text, flags=re.MULTILINE)
        if not count:
            raise ValueError(f"config/{name} has no match of {pattern!r}: adapt SPLICES in hack/chart.py")
    text = text.replace(f"namespace: {NAMESPACE}", "namespace: {{ .Release.Namespace | quote }}")
    text = text.replace(NAMESPACE, "{{ .Release.Namespace }}")
    condition = CONDITIONS.get(name) or CONDITIONS.get(folder)
    return HEADER + (f"{{{{- if {condition} }}}}\n{text}{{{{- end }}}}\n" if condition else text)


def setting(value: str, variable: str, expression: str) -> str:
    """Return a variable of the operator that is set where the chart's value is not empty."""
    return (
        f"            {{{{- with {value if ' ' in value else f'.Values.{value}'} }}}}\n"
        f"            - {{name: ELASTICJOB_OPERATOR_{variable}, value: {{{{ {expression} }}}}}}\n"
        "            {{- end }}\n"
    )


CONDITIONS: Final = {
    "crd": ".Values.crds",
    "rbac/users.yaml": ".Values.crds",
    "brain": ".Values.brain.enabled",
    "diengine": ".Values.diServer.enabled",
    "brain/claim.yaml": "and .Values.brain.enabled (not .Values.brain.postgresql)",
    "operator/budget.yaml": "gt (int .Values.replicas) 1",  # a replica that is alone could never be moved
}
"""When manifests are part of a release, by folder or path."""
IMAGE: Final = '"{{ %s.repository }}:{{ %s.tag | default .Chart.AppVersion }}"'
SCRAPERS: Final = (
    '.Values.scrapers | default (ternary (dict "kubernetes.io/metadata.name" .Release.Namespace) '
    "(dict) .Values.brain.enabled)"
)
OPERATORS_BRAIN: Final = """\
            {{- if .Values.brain.enabled }}
            - {name: ELASTICJOB_OPERATOR_BRAIN, value: "elasticjob-brain.{{ .Release.Namespace }}:8090"}
            - {name: ELASTICJOB_OPERATOR_BRAIN_KEY_FILE, value: /brain/key}
            {{- end }}
"""
OPERATORS_KEYS: Final = """\
          {{- $tokens := and .Values.diServer.enabled .Values.diServer.secret }}
          {{- if or .Values.brain.enabled $tokens }}
          volumeMounts:
            {{- if .Values.brain.enabled }}
            - {name: brain, mountPath: /brain, readOnly: true}
            {{- end }}
            {{- if $tokens }}
            - {name: di-server, mountPath: /di-server, readOnly: true}
            {{- end }}
      volumes:
        {{- if .Values.brain.enabled }}
        - name: brain
          secret: {secretName: {{ .Values.brain.secret | quote }}, items: [{key: key, path: key}]}
        {{- end }}
        {{- if $tokens }}
        - name: di-server
          secret: {secretName: {{ .Values.diServer.secret | quote }}, items: [{key: key, path: key}]}
        {{- end }}
          {{- end }}
"""
OPERATORS_DI_SERVER: Final = """\
            {{- if .Values.diServer.enabled }}
            - name: ELASTICJOB_OPERATOR_DI_SERVER
              value: "http://elasticjob-di-server.{{ .Release.Namespace }}:8080"
            {{- if .Values.diServer.secret }}
            - {name: ELASTICJOB_OPERATOR_DI_SERVER_KEY_FILE, value: /di-server/key}
            {{- end }}
            {{- end }}
"""
DI_SERVERS_ENVIRONMENT: Final = """\
            {{- with .Values.watchNamespace }}
            - {name: ELASTICJOB_DI_SERVER_NAMESPACE, value: {{ . | quote }}}
            {{- end }}
            {{- if .Values.diServer.localPorts }}
            - {name: ELASTICJOB_DI_SERVER_LOCAL_PORTS, value: "true"}
            {{- end }}
            {{- if .Values.diServer.secret }}
            - {name: ELASTICJOB_DI_SERVER_KEY_FILE, value: /di-server/key}
            {{- end }}
"""
DI_SERVERS_KEY: Final = """\
          {{- with .Values.diServer.secret }}
          volumeMounts:
            - {name: key, mountPath: /di-server, readOnly: true}
      volumes:
        - name: key
          secret: {secretName: {{ . | quote }}, items: [{key: key, path: key}]}
          {{- end }}
"""
DATABASE: Final = """\
            {{- if .Values.brain.postgresql }}
            - name: ELASTICJOB_BRAIN_DATABASE
              valueFrom: {secretKeyRef: {name: {{ .Values.brain.secret | quote }}, key: database}}
            {{- else }}
            - {name: ELASTICJOB_BRAIN_DATABASE, value: "sqlite:////data/brain.db"}
            {{- end }}
            {{- with .Values.watchNamespace }}
            - {name: ELASTICJOB_BRAIN_NAMESPACE, value: {{ . | quote }}}
            {{- end }}
            {{- if ne .Values.brain.source "masters" }}
            - {name: ELASTICJOB_BRAIN_SOURCE, value: {{ .Values.brain.source }}}
            {{- end }}
            {{- if ne .Values.brain.share "none" }}
            - {name: ELASTICJOB_BRAIN_SHARE, value: {{ .Values.brain.share }}}
            {{- end }}
            {{- with .Values.brain.prometheus }}
            - {name: ELASTICJOB_BRAIN_PROMETHEUS, value: {{ . | quote }}}
            {{- end }}
"""


def sqlite(text: str) -> str:
    """Return lines that are left out where the database is elsewhere."""
    return "{{- if not .Values.brain.postgresql }}\n" + text + "{{- end }}\n"


def of_one_namespace(name: str) -> tuple[tuple[str, str], ...]:
    """Splices of roles that are bound in one namespace, where only that is watched."""
    return (
        (rf"kind: (ClusterRole(?:Binding)?)\nmetadata:\n  name: {name}.*", rf"\g<0>{SUFFIX}"),
        (
            rf"ClusterRoleBinding\n(metadata:\n  name: {name}\{{\{{.*\n)",
            r"{{ .Values.watchNamespace | empty | ternary "
            r'"ClusterRoleBinding" "RoleBinding" }}\n\1'
            "  {{- with .Values.watchNamespace }}\n  namespace: {{ . | quote }}\n  {{- end }}\n",
        ),
        (rf"(kind: ClusterRole, name: {name}[^}}]*)\}}", rf"\1{SUFFIX}}}"),
    )


SPLICES: Final[Mapping[str, tuple[tuple[str, str], ...]]] = {
    "crd": (
        (r"\A# Made by .*\n", ""),
        (r"^metadata:\n  name: .*\n", rf"\g<0>{KEEP}"),
    ),
    "rbac/operator.yaml": (
        *of_one_namespace("elasticjob-operator"),
        (r"resourceNames: \[(elasticjob|elasticjob-operator-cluster)\]", rf"resourceNames: [\1{SUFFIX}]"),
    ),
    "brain/rbac.yaml": of_one_namespace("elasticjob-brain"),
    "brain/claim.yaml": (
        (r"storage: 10Gi", "storage: {{ .Values.brain.storage.size }}"),
        (
            r"^  accessModes: .*\n",
            r"\g<0>  {{- with .Values.brain.storage.className }}\n"
            "  storageClassName: {{ . }}\n  {{- end }}\n",
        ),
    ),
    "brain/deployment.yaml": (
        (r"^  replicas: .*", "  replicas: {{ .Values.brain.replicas }}"),
        (r"type: Recreate", 'type: {{ ternary "RollingUpdate" "Recreate" .Values.brain.postgresql }}'),
        (r"image: elasticjob/brain$", "image: " + IMAGE.replace("%s", ".Values.brain.image")),
        (r"imagePullPolicy: .*", "imagePullPolicy: {{ .Values.image.pullPolicy }}"),
        (r"^ +- \{name: ELASTICJOB_BRAIN_DATABASE, .*\n", DATABASE),
        (r"^ +- \{name: data, mountPath: /data\}\n", sqlite(r"\g<0>")),
        (r"^ +- name: data\n.*\n", sqlite(r"\g<0>")),
        (r"secretName: elasticjob-brain", "secretName: {{ .Values.brain.secret | quote }}"),
        (
            r"^          resources:\n(?: {12}.*\n)+",
            "          resources: {{- toYaml .Values.brain.resources | nindent 12 }}\n",
        ),
    ),
    "diengine/rbac.yaml": of_one_namespace("elasticjob-di-server"),
    "diengine/deployment.yaml": (
        (r"^  replicas: .*", "  replicas: {{ .Values.diServer.replicas }}"),
        (r"image: elasticjob/operator$", "image: " + IMAGE.replace("%s", ".Values.image")),
        (r"imagePullPolicy: .*", "imagePullPolicy: {{ .Values.image.pullPolicy }}"),
        (r"^ +- \{name: ELASTICJOB_DI_SERVER_URL, .*\n", rf"\g<0>{DI_SERVERS_ENVIRONMENT}"),
        (
            r"^          resources:\n(?: {12}.*\n)+",
            "          resources: {{- toYaml .Values.diServer.resources | nindent 12 }}\n",
        ),
        (r"^            capabilities: .*\n", rf"\g<0>{DI_SERVERS_KEY}"),
    ),
    "operator/deployment.yaml": (
        (r"^  replicas: .*", "  replicas: {{ .Values.replicas }}"),
        (r"value: elasticjob-operator-cluster", rf"\g<0>{SUFFIX}"),
        (
            r"image: elasticjob/operator$",
            "image: " + IMAGE.replace("%s", ".Values.image"),
        ),
        (r"imagePullPolicy: .*", "imagePullPolicy: {{ .Values.image.pullPolicy }}"),
        (
            r"^ +- \{name: POD_NAMESPACE, .*\n",
            r"\g<0>"
            + setting("watchNamespace", "NAMESPACE", ". | quote")
            + setting("trainerImage", "TRAINER_IMAGE", ". | quote")
            + setting(SCRAPERS, "SCRAPERS", ". | toJson | quote")
            + OPERATORS_BRAIN
            + OPERATORS_DI_SERVER
            + setting("gangScheduler", "GANG_SCHEDULER", ". | quote"),
        ),
        (
            r"^          resources:\n(?: {12}.*\n)+",
            "          resources: {{- toYaml .Values.resources | nindent 12 }}\n",
        ),
        (r"^            capabilities: .*\n", rf"\g<0>{OPERATORS_KEYS}"),
    ),
}
"""Patterns and what takes their place, by folder or path. The namespace is replaced everywhere."""
