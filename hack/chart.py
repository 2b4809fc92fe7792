"""The Helm chart `charts/elasticjob`: the manifests of `config/`, with the chart's values spliced in.

A splice replaces what a pattern finds in a manifest by a template. It must find something, so a change of
`config/` that would leave a value without effect fails `make generate`. Written by hand: what templates share
(`templates/_helpers.tpl`), and which values are refused (`templates/refused.yaml`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from elasticjob import __version__
from hack.chart_values import CONFIG, HEADER, deployed, schema_text, values_text

ROOT: Final = Path(__file__).parent.parent
CHART: Final = ROOT / "charts" / "elasticjob"
LEFT_OUT: Final = "operator/namespace.yaml"
"""Helm makes the namespace of a release (--create-namespace)."""
COMPONENTS: Final = ("brain", "diengine")
NAMESPACE: Final = "elasticjob-system"
KEEP: Final = "  annotations:\n    helm.sh/resource-policy: keep # every job would go with its definition\n"
KEEP_CLAIM: Final = "  annotations:\n    helm.sh/resource-policy: keep # the history of all jobs\n"
SUFFIX: Final = "{{ with .Values.watchNamespace }}-{{ . }}{{ end }}"
"""Cluster-wide objects of operators that work in one namespace each have different names."""


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
