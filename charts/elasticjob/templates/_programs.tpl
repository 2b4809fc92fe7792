{{- /* What the three programs have in common. Each template takes $, the component, and the program's values. */}}

{{- /* Its ServiceAccount. */}}
{{- define "elasticjob.serviceAccount" }}
{{- $account := (index . 2).serviceAccount }}
{{- if $account.create }}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ include "elasticjob.account" . }}
  namespace: {{ (index . 0).Release.Namespace | quote }}
  labels: {{- include "elasticjob.labels" (list (index . 0) (index . 1)) | nindent 4 }}
  {{- with $account.annotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}
{{- end }}

{{- /* Its roles: for jobs, a Role where one namespace is watched; for what belongs to the whole cluster; and for what
       replicas share. */}}
{{- define "elasticjob.roles" }}
{{- $root := index . 0 }}
{{- $component := index . 1 }}
{{- $rules := get ($root.Files.Get "files/rules.yaml" | fromYaml) $component }}
{{- $name := printf "%s-%s" (include "elasticjob.name" $root) $component }}
{{- $watched := $root.Values.watchNamespace }}
{{- $subjects := list (dict "kind" "ServiceAccount" "name" (include "elasticjob.account" .) "namespace" $root.Release.Namespace) }}
{{- $roles := list (dict "rules" $rules.jobs "namespace" $watched "name" (ternary (print $name "-jobs") $name (ne $watched ""))) }}
{{- with $rules.cluster }}
{{- /* elasticjob-operator-cluster owns the registered webhooks, so without them it has to go: another name. */}}
{{- $end := ternary "-nodes" "-cluster" (and (eq $component "operator") (not $root.Values.webhook.enabled)) }}
{{- $roles = append $roles (dict "rules" . "namespace" "" "name" (print $name $end (include "elasticjob.suffix" $root))) }}
{{- end }}
{{- with $rules.own }}
{{- $roles = append $roles (dict "rules" . "namespace" $root.Release.Namespace "name" $name) }}
{{- end }}
{{- range $roles }}
{{- $kind := ternary "Role" "ClusterRole" (ne .namespace "") }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $kind }}
metadata:
  name: {{ .name }}
  {{- with .namespace }}
  namespace: {{ . | quote }}
  {{- end }}
  labels: {{- include "elasticjob.labels" (list $root $component) | nindent 4 }}
rules: {{- include "elasticjob.rules" (list $root .rules) | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $kind }}Binding
metadata:
  name: {{ .name }}
  {{- with .namespace }}
  namespace: {{ . | quote }}
  {{- end }}
  labels: {{- include "elasticjob.labels" (list $root $component) | nindent 4 }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: {{ $kind }}, name: {{ .name }}}
subjects: {{- toYaml $subjects | nindent 2 }}
{{- end }}
{{- end }}

{{- /* Its PodDisruptionBudget. */}}
{{- define "elasticjob.budget" }}
{{- $budget := (index . 2).podDisruptionBudget }}
{{- if and $budget.enabled (gt (int (index . 2).replicas) 1) }}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {{- include "elasticjob.metadata" (list (index . 0) (index . 1) (index . 1)) | nindent 2 }}
spec:
  minAvailable: {{ $budget.minAvailable }}
  selector:
    matchLabels: {{- include "elasticjob.selector" . | nindent 6 }}
{{- end }}
{{- end }}

{{- /* Labels and annotations of its pods. */}}
{{- define "elasticjob.podMetadata" -}}
{{- $more := list ((index . 2).podLabels | default dict) ((index . 0).Values.commonLabels | default dict) }}
labels: {{- toYaml (merge (include "elasticjob.selector" . | fromYaml) (first $more) (last $more)) | nindent 2 }}
{{- with (index . 2).podAnnotations }}
annotations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* Where its pods run. */}}
{{- define "elasticjob.placed" }}
{{- $values := index . 2 }}
{{- $ours := include "elasticjob.selector" . | fromYaml }}
{{- with concat ((index . 0).Values.global.imagePullSecrets | default list) ((index . 0).Values.imagePullSecrets | default list) | uniq }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- range $name := list "nodeSelector" "tolerations" "affinity" }}
{{- with index $values $name }}
{{ $name }}: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- with $values.topologySpreadConstraints }}
topologySpreadConstraints:
{{- range . }}
  - {{ merge (deepCopy .) (dict "labelSelector" (dict "matchLabels" $ours)) | toYaml | indent 4 | trim }}
{{- end }}
{{- end }}
{{- with $values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- end }}

{{- /* The securityContext of its pods; with Brain's volume a group for that. */}}
{{- define "elasticjob.podSecurity" }}
{{- $user := (index . 0).Values.userId | int64 }}
{{- $ours := dict "runAsNonRoot" true "seccompProfile" (dict "type" "RuntimeDefault") }}
{{- if ne $user 0 }}
{{- $ours = merge $ours (dict "runAsUser" $user "runAsGroup" $user) }}
{{- if eq (index . 1) "brain" }}{{ $_ := set $ours "fsGroup" $user }}{{ end }}
{{- end }}
{{- include "elasticjob.over" (list $ours (index . 2).podSecurityContext) }}
{{- end }}

{{- /* The securityContext of its container. */}}
{{- define "elasticjob.containerSecurity" }}
{{- $ours := dict "allowPrivilegeEscalation" false "readOnlyRootFilesystem" true "capabilities" (dict "drop" (list "ALL")) }}
{{- include "elasticjob.over" (list $ours (index . 2).containerSecurityContext) }}
{{- end }}

{{- /* Its command's flags. */}}
{{- define "elasticjob.args" }}
{{- $logging := (index . 0).Values.logging }}
{{- $args := list (index . 1) "--log-format" $logging.format }}
{{- if $logging.verbose }}{{ $args = append $args "--verbose" }}{{ end }}
{{- concat $args ((index . 2).extraArgs | default list) | toYaml }}
{{- end }}

{{- /* Probes of a port. Takes the port, and how long it may take to start, in seconds, and to become ready. */}}
{{- define "elasticjob.probes" -}}
startupProbe:
  httpGet: {path: /healthz, port: {{ index . 0 }}}
  periodSeconds: 1
  failureThreshold: {{ index . 1 }}
livenessProbe:
  httpGet: {path: /healthz, port: {{ index . 0 }}}
  periodSeconds: 10
  timeoutSeconds: 5
readinessProbe:
  httpGet: {path: /readyz, port: {{ index . 0 }}}
  periodSeconds: {{ index . 2 }}
  timeoutSeconds: 2
{{- end }}

{{- /* Fields of the pods of masters, as JSON; 65532 is the user that the operator gives them by itself. Takes $. */}}
{{- define "elasticjob.masters" }}
{{- $pod := dict }}
{{- range $name := list "imagePullSecrets" "nodeSelector" "tolerations" "affinity" "priorityClassName" }}
{{- with index $.Values.masters $name }}{{ $_ := set $pod $name . }}{{ end }}
{{- end }}
{{- $security := deepCopy .Values.masters.podSecurityContext }}
{{- $user := .Values.userId | int64 }}
{{- range $name := list "runAsUser" "runAsGroup" "fsGroup" }}
{{- if and (ne $user 65532) (not (hasKey $security $name)) }}
{{- if eq $user 0 }}{{ $_ := set $security $name nil }}{{ else }}{{ $_ := set $security $name $user }}{{ end }}
{{- end }}
{{- end }}
{{- with $security }}{{ $_ := set $pod "securityContext" . }}{{ end }}
{{- toJson $pod }}
{{- end }}

{{- /* Who reads metrics, as peers of a NetworkPolicy. Takes $. */}}
{{- define "elasticjob.readers" -}}
- podSelector: {}
{{- range .Values.networkPolicy.metricsFrom }}
- namespaceSelector:
    matchLabels: {{- toYaml . | nindent 6 }}
{{- end }}
{{- end }}
