"""The Helm chart `charts/elasticjob`: the manifests of `config/`, with the chart's values spliced in.

A splice replaces what a pattern finds in a manifest by a template. It must find something, so a change of
`config/` that would leave a value without effect fails `make generate`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from copy import deepcopy
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
KEEP_CLAIM: Final = "  annotations:\n    helm.sh/resource-policy: keep # the history of all jobs\n"
SUFFIX: Final = "{{ with .Values.watchNamespace }}-{{ . }}{{ end }}"
"""Cluster-wide objects of operators that work in one namespace each have different names."""

USER: Final = 65532

OBJECT: Final[dict[str, Any]] = {"type": "object"}
OBJECTS: Final[dict[str, Any]] = {"type": "array", "items": OBJECT}
TEXTS: Final[dict[str, Any]] = {"type": "object", "additionalProperties": {"type": "string"}}
SECRETS: Final[dict[str, Any]] = {
    "type": "array",
    "items": {
        "type": "object",
        "additionalProperties": False,
        "required": ["name"],
        "properties": {"name": {"type": "string", "minLength": 1}},
    },
}
RESOURCES: Final[dict[str, Any]] = {
    "type": "object",
    "additionalProperties": False,
    "properties": {"requests": OBJECT, "limits": OBJECT, "claims": OBJECTS},
}
WHERE: Final[Mapping[str, Any]] = {
    "nodeSelector": TEXTS,
    "tolerations": OBJECTS,
    "affinity": OBJECT,
    "priorityClassName": {"type": "string"},
    "podSecurityContext": OBJECT,
    "containerSecurityContext": OBJECT,
}
"""Where pods run, and as whom: of the three programs, and of masters."""
PLACED: Final[Mapping[str, Any]] = {"imagePullSecrets": SECRETS, **WHERE}
OF_A_POD: Final[Mapping[str, Any]] = {
    **WHERE,
    "podLabels": TEXTS,
    "podAnnotations": TEXTS,
    "serviceAccount": {
        "type": "object",
        "additionalProperties": False,
        "properties": {"annotations": TEXTS},
    },
    "extraEnv": OBJECTS,
}
"""What each of the three programs has beside its own values."""
EMPTY: Final[Mapping[str, Any]] = {"object": {}, "array": [], "string": ""}


ABOUT: Final = {
    "nodeSelector": "Where the operator's pods run.",
    "podSecurityContext": (
        "Fields of the securityContexts of the operator's pods and their container, added to ours or in\n"
        "their place; null takes one of ours away."
    ),
    "podLabels": "More labels and annotations of the operator's pods, and annotations of its ServiceAccount.",
    "extraEnv": "More variables of the operator: ELASTICJOB_OPERATOR_* are in controllers/settings.py.",
}


def default_of(name: str) -> Any:
    """Return the empty default of a value of pods."""
    if name == "serviceAccount":
        return {"annotations": {}}
    return deepcopy(EMPTY[{**PLACED, **OF_A_POD}[name]["type"]])  # or YAML would have one refer to another


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
    image = {
        "repository": container["image"],
        "tag": "",
        "digest": "",
        "pullPolicy": container["imagePullPolicy"],
    }
    text, flag, count = {"type": "string"}, {"type": "boolean"}, {"type": "integer", "minimum": 1}
    parts = {
        "repository": text | {"minLength": 1},
        "tag": text,
        "digest": {"type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$"},
        "pullPolicy": {"enum": ["Always", "IfNotPresent", "Never"]},
    }
    return {
        "image": Value(
            "The image of the operator and di-server. No tag: that of the chart's version. A digest wins.",
            image,
            members(parts),
        ),
        "trainerImage": Value(
            f"The image of masters whose job names none; empty means elasticjob/trainer:{__version__}.",
            "",
            text,
        ),
        "imagePullSecrets": Value(
            "Secrets of this namespace, as in - name: registry, with which the images above and Brain's are\n"
            "pulled. Those of masters are in the jobs' namespaces: masters.imagePullSecrets.",
            [],
            SECRETS,
        ),
        "userId": Value(
            "The user and group of all pods of this release, and of masters whose job names none. 0: the\n"
            "cluster chooses one that is not root, as OpenShift's restricted-v2 does.",
            USER,
            {"type": "integer", "minimum": 0},
        ),
        "masters": Value(
            "What pods of masters have whose job says nothing else: imagePullSecrets are names in the job's\n"
            "namespace. Fields of the securityContexts replace ours, and null takes one of ours away.",
            {name: default_of(name) for name in PLACED},
            members(PLACED),
        ),
        **{name: Value(ABOUT.get(name, ""), default_of(name), each) for name, each in OF_A_POD.items()},
        "nameOverride": Value(
            "The label app.kubernetes.io/name of all objects, if not elasticjob.", "", text
        ),
        "fullnameOverride": Value(
            "What the names of all objects begin with, in place of elasticjob.",
            "",
            text | {"maxLength": 40, "pattern": "^([a-z]([-a-z0-9]*[a-z0-9])?)?$"},
        ),
        "replicas": Value(
            "Operators that serve webhooks; one of them at a time reconciles.",
            spec["replicas"],
            count,
        ),
        "resources": Value("Requests and limits of each operator.", container["resources"], RESOURCES),
        "watchNamespace": Value(
            "The only namespace whose jobs are run; empty means the whole cluster.",
            "",
            text | {"maxLength": 63},
        ),
        "scrapers": Value(
            "Whose pods may read the metrics of masters: a list of labels of namespaces, as in\n"
            "- kubernetes.io/metadata.name: monitoring. Brain's namespace is always added.",
            [],
            {"type": "array", "items": TEXTS | {"minProperties": 1}},
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
            "`source` is masters, none, or prometheus, whose URL is `prometheus`. SQLite's volume stays\n"
            "when the release is uninstalled. Its pods have the same values as the operator's.",
            brain_values(),
            members(
                {
                    "enabled": flag,
                    "image": members({name: parts[name] for name in ("repository", "tag", "digest")}),
                    "replicas": count,
                    "secret": text | {"minLength": 1},
                    "postgresql": flag,
                    "storage": members({"size": text | {"minLength": 1}, "className": text}),
                    "share": {"enum": ["none", "fulfilment", "goodput"]},
                    "source": {"enum": ["masters", "prometheus", "none"]},
                    "prometheus": text,
                    "resources": RESOURCES,
                    **OF_A_POD,
                }
            ),
        ),
        "diServer": Value(
            "di-server, which DIJobs of DI-engine need (docs/dijob.md). `secret` names a Secret with `key`,\n"
            "by which pods get tokens that are bound to their job; empty: whoever reaches it may call. Its\n"
            "pods have the same values as the operator's.",
            di_server_values(),
            members(
                {
                    "enabled": flag,
                    "replicas": count,
                    "secret": text,
                    "localPorts": flag,
                    "resources": RESOURCES,
                    **OF_A_POD,
                }
            ),
        ),
        "crds": Value(
            "Whether this release brings the CRDs, and the rights on jobs of the cluster's roles view, edit\n"
            "and admin. One release of a cluster does. The CRDs stay when it is uninstalled.",
            True,
            flag,
        ),
        "global": Value(
            "Values of a chart that contains this one: imageRegistry goes before repositories that name no\n"
            "registry, imagePullSecrets are added to those above.",
            {"imageRegistry": "", "imagePullSecrets": []},
            {"type": "object", "properties": {"imageRegistry": text, "imagePullSecrets": SECRETS}},
        ),
    }


def brain_values() -> Mapping[str, Any]:
    """Return the values of Brain; defaults that `config/` has are read there."""
    spec, container = deployed("brain")
    claim = yaml.safe_load((CONFIG / "brain" / "claim.yaml").read_text())["spec"]
    return {
        "enabled": False,
        "image": {"repository": container["image"], "tag": "", "digest": ""},
        "replicas": spec["replicas"],
        "secret": "elasticjob-brain",
        "postgresql": False,
        "storage": {"size": claim["resources"]["requests"]["storage"], "className": ""},
        "share": "none",
        "source": "masters",
        "prometheus": "",
        "resources": container["resources"],
        **{name: default_of(name) for name in OF_A_POD},
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
        **{name: default_of(name) for name in OF_A_POD},
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
    return ("\n" if about else "") + about + yaml.safe_dump({name: value.default}, sort_keys=False)


def schema_text() -> str:
    """Return values.schema.json, by which Helm refuses values that are not there."""
    properties = {
        name: ({"description": value.about.replace("\n", " ")} if value.about else {}) | dict(value.schema)
        for name, value in values().items()
    }
    draft = {"$schema": "https://json-schema.org/draft-07/schema#"}
    return json.dumps(draft | members(properties), indent=2) + "\n"


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
    if folder != "crd":
        text = re.sub(r"(?<![\w.-])elasticjob-(?=[a-z])", '{{ include "elasticjob.name" $ }}-', text)
        text = text.replace("io/name: elasticjob", 'io/name: {{ include "elasticjob.label" $ }}')
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
MASTERS: Final = """\
            {{- with include "elasticjob.masters" . }}
            {{- if ne . "{}" }}
            - {name: ELASTICJOB_OPERATOR_MASTER_POD, value: {{ . | quote }}}
            {{- end }}
            {{- end }}
            {{- with .Values.masters.containerSecurityContext }}
            - {name: ELASTICJOB_OPERATOR_MASTER_SECURITY_CONTEXT, value: {{ . | toJson | quote }}}
            {{- end }}
"""
TRAINER: Final = (
    "(or .Values.trainerImage (and .Values.global.imageRegistry "
    f'(include "elasticjob.repository" (list $ "elasticjob/trainer:{__version__}"))))'
)
OPERATORS_BRAIN: Final = """\
            {{- if .Values.brain.enabled }}
            - {name: ELASTICJOB_OPERATOR_BRAIN_NAMESPACE, value: {{ .Release.Namespace }}}
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
            {{- with .Values.fullnameOverride }}
            - {name: ELASTICJOB_BRAIN_LEASE, value: {{ . }}-brain}
            {{- end }}
"""


def sqlite(text: str) -> str:
    """Return lines that are left out where the database is elsewhere."""
    return "{{- if not .Values.brain.postgresql }}\n" + text + "{{- end }}\n"


def image(value: str) -> str:
    """Return the image of a container."""
    return f'image: {{{{ include "elasticjob.image" (list $ {value}) | quote }}}}'


def account(values: str) -> tuple[str, str]:
    """Return the splice of a ServiceAccount's annotations; it is the first object of its file."""
    lines = (
        f"  {{{{- with {values}.serviceAccount.annotations }}}}\n"
        "  annotations: {{- toYaml . | nindent 4 }}\n  {{- end }}\n"
    )
    return r"(kind: ServiceAccount\nmetadata:\n(?:  .*\n)+)", r"\1" + lines


def of_a_pod(folder: str, values: str, last: str = "") -> tuple[tuple[str, str], ...]:
    """Return the splices of a Deployment's pods: labels, placement, securityContexts, variables, resources.

    `last` follows the securityContext of the container.
    """
    spec, container = deployed(folder)
    pod = spec["template"]["spec"]["securityContext"]
    labels = as_template(spec["template"]["metadata"]["labels"])
    labels = labels.replace('"elasticjob"', '(include "elasticjob.label" $)')
    return (
        (
            r"^      labels: .*\n",
            f"      labels: {{{{- toYaml (merge {labels} {values}.podLabels) | nindent 8 }}}}\n"
            f"      {{{{- with {values}.podAnnotations }}}}\n"
            "      annotations: {{- toYaml . | nindent 8 }}\n"
            "      {{- end }}\n",
        ),
        (
            r"^      serviceAccountName: .*\n",
            rf'\g<0>      {{{{- include "elasticjob.placed" (list $ {values}) | nindent 6 }}}}\n',
        ),
        (
            r"^      securityContext:\n(?: {8}.*\n)+",
            '      securityContext: {{- include "elasticjob.podSecurity" '
            f"(list $ {as_template(pod)} {values}.podSecurityContext) | nindent 8 }}}}\n",
        ),
        (
            r"^          ports:\n",
            f"            {{{{- with {values}.extraEnv }}}}\n"
            "            {{- toYaml . | nindent 12 }}\n"
            r"            {{- end }}\n\g<0>",
        ),
        (
            r"^          resources:\n(?: {12}.*\n)+",
            f"          resources: {{{{- toYaml {values}.resources | nindent 12 }}}}\n",
        ),
        (
            r"^          securityContext:\n(?: {12}.*\n)+",
            '          securityContext: {{- include "elasticjob.over" '
            f"(list {as_template(container['securityContext'])} {values}.containerSecurityContext) "
            f"| nindent 12 }}}}\n{last}",
        ),
    )


def as_template(value: Any) -> str:
    """Return a value of a manifest as an expression of Helm's."""
    match value:
        case dict():
            members = (f"{json.dumps(name)} {as_template(each)}" for name, each in value.items())
            return f"(dict {' '.join(members)})"
        case list():
            return f"(list {' '.join(map(as_template, value))})"
        case _:
            return json.dumps(value)


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
        account(".Values"),
        (r"resourceNames: \[(elasticjob|elasticjob-operator-cluster)\]", rf"resourceNames: [\1{SUFFIX}]"),
    ),
    "brain/rbac.yaml": (*of_one_namespace("elasticjob-brain"), account(".Values.brain")),
    "brain/claim.yaml": (
        (r"^metadata:\n", rf"\g<0>{KEEP_CLAIM}"),
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
        (r"image: elasticjob/brain$", image(".Values.brain.image")),
        (r"imagePullPolicy: .*", "imagePullPolicy: {{ .Values.image.pullPolicy }}"),
        (r"^ +- \{name: ELASTICJOB_BRAIN_DATABASE, .*\n", DATABASE),
        (r"^ +- \{name: data, mountPath: /data\}\n", sqlite(r"\g<0>")),
        (r"^ +- name: data\n.*\n", sqlite(r"\g<0>")),
        (r"secretName: elasticjob-brain", "secretName: {{ .Values.brain.secret | quote }}"),
        *of_a_pod("brain", ".Values.brain"),
    ),
    "diengine/rbac.yaml": (*of_one_namespace("elasticjob-di-server"), account(".Values.diServer")),
    "diengine/deployment.yaml": (
        (r"^  replicas: .*", "  replicas: {{ .Values.diServer.replicas }}"),
        (r"image: elasticjob/operator$", image(".Values.image")),
        (r"imagePullPolicy: .*", "imagePullPolicy: {{ .Values.image.pullPolicy }}"),
        (r"^ +- \{name: ELASTICJOB_DI_SERVER_URL, .*\n", rf"\g<0>{DI_SERVERS_ENVIRONMENT}"),
        *of_a_pod("diengine", ".Values.diServer", DI_SERVERS_KEY),
    ),
    "operator/deployment.yaml": (
        (r"^  replicas: .*", "  replicas: {{ .Values.replicas }}"),
        (r"value: elasticjob-operator-cluster", rf"\g<0>{SUFFIX}"),
        (r"image: elasticjob/operator$", image(".Values.image")),
        (r"imagePullPolicy: .*", "imagePullPolicy: {{ .Values.image.pullPolicy }}"),
        (
            r"^ +- \{name: POD_NAMESPACE, .*\n",
            r"\g<0>"
            + setting("watchNamespace", "NAMESPACE", ". | quote")
            + setting(TRAINER, "TRAINER_IMAGE", ". | quote")
            + MASTERS
            + setting("scrapers", "SCRAPERS", ". | toJson | quote")
            + OPERATORS_BRAIN
            + OPERATORS_DI_SERVER
            + setting("gangScheduler", "GANG_SCHEDULER", ". | quote")
            + setting("fullnameOverride", "LEASE", 'printf "%s-operator" . | quote'),
        ),
        *of_a_pod("operator", ".Values", OPERATORS_KEYS),
    ),
}
"""Patterns and what takes their place, by folder or path. The namespace is replaced everywhere."""
