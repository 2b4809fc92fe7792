{{- define "elasticjob.name" }}{{ .Values.fullnameOverride | default "elasticjob" }}{{ end }}
{{- define "elasticjob.label" }}{{ .Values.nameOverride | default "elasticjob" }}{{ end }}

{{- /* What is appended to names of cluster-wide objects: operators of one namespace each have different ones. */}}
{{- define "elasticjob.suffix" }}{{ with .Values.watchNamespace }}-{{ . }}{{ end }}{{ end }}

{{- /* The labels that Services and Deployments select pods by; they never change. Takes $ and the component. */}}
{{- define "elasticjob.selector" -}}
app.kubernetes.io/name: {{ include "elasticjob.label" (index . 0) }}
{{- with index . 1 }}
app.kubernetes.io/component: {{ . }}
{{- end }}
{{- end }}

{{- /* The labels of an object: ours over those that are asked for. Takes $, the component, and more labels. */}}
{{- define "elasticjob.labels" }}
{{- $root := index . 0 }}
{{- $ours := include "elasticjob.selector" . | fromYaml }}
{{- $_ := set $ours "app.kubernetes.io/instance" $root.Release.Name }}
{{- $_ := set $ours "app.kubernetes.io/version" $root.Chart.AppVersion }}
{{- $_ := set $ours "app.kubernetes.io/managed-by" $root.Release.Service }}
{{- $_ := set $ours "helm.sh/chart" (printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_") }}
{{- range rest (rest .) }}{{ $ours = merge $ours (. | default dict) }}{{ end }}
{{- toYaml (merge $ours ($root.Values.commonLabels | default dict)) }}
{{- end }}

{{- /* Name, namespace and labels of an object of this namespace. Takes $, the end of its name, the component. */}}
{{- define "elasticjob.metadata" -}}
name: {{ include "elasticjob.name" (index . 0) }}-{{ index . 1 }}
namespace: {{ (index . 0).Release.Namespace | quote }}
labels: {{- include "elasticjob.labels" (list (index . 0) (index . 2)) | nindent 2 }}
{{- end }}

{{- /* Values of one of the three programs: its component → its values. */}}
{{- define "elasticjob.account" }}
{{- $account := (index . 2).serviceAccount }}
{{- $account.name | default (ternary (printf "%s-%s" (include "elasticjob.name" (index . 0)) (index . 1)) "default" $account.create) }}
{{- end }}

{{- /* Whether CRDs are part of the release, and stay; earlier versions of the chart had a boolean. */}}
{{- define "elasticjob.crds" }}
{{- if kindIs "bool" .Values.crds }}{{ dict "enabled" .Values.crds "keep" true | toYaml }}{{ else }}{{ toYaml .Values.crds }}{{ end }}
{{- end }}

{{- /* A repository, with its registry before it where it names none. Takes $, the repository, its registry. */}}
{{- define "elasticjob.repository" }}
{{- $named := regexMatch "^([^/]*[.:][^/]*|localhost)/" (index . 1) }}
{{- with (index . 0).Values.global.imageRegistry | default (index . 2) }}
{{- if not $named }}{{ trimSuffix "/" . }}/{{ end }}
{{- end }}
{{- index . 1 }}
{{- end }}

{{- /* An image. Takes $ and the value with registry, repository, tag and digest. */}}
{{- define "elasticjob.image" }}
{{- $image := index . 1 }}
{{- include "elasticjob.repository" (list (index . 0) $image.repository $image.registry) }}
{{- with $image.digest }}@{{ . }}{{ else }}:{{ $image.tag | default (index . 0).Chart.AppVersion }}{{ end }}
{{- end }}

{{- /* The fields of the first object, with those of the second added or in their place; null takes one away. */}}
{{- define "elasticjob.over" }}
{{- $found := deepCopy (index . 0) }}
{{- range $name, $value := index . 1 }}
{{- if kindIs "invalid" $value }}{{ $_ := unset $found $name }}{{ else }}{{ $_ := set $found $name $value }}{{ end }}
{{- end }}
{{- toYaml $found }}
{{- end }}

{{- /* The rules of a role, by the names of this release. Takes $, and the rules. */}}
{{- define "elasticjob.rules" }}
{{- $root := index . 0 }}
{{- $rules := list }}
{{- range index . 1 }}
{{- $ofWebhooks := or (has "admissionregistration.k8s.io" .apiGroups) (has "clusterroles" .resources) }}
{{- if or $root.Values.webhook.enabled (not $ofWebhooks) }}
{{- $names := list }}
{{- range .resourceNames }}
{{- $name := . | replace "elasticjob-" (printf "%s-" (include "elasticjob.name" $root)) }}
{{- $names = append $names (ternary (print $name (include "elasticjob.suffix" $root)) $name $ofWebhooks) }}
{{- end }}
{{- $rules = append $rules (ternary (set (deepCopy .) "resourceNames" $names) . (hasKey . "resourceNames")) }}
{{- end }}
{{- end }}
{{- toYaml $rules }}
{{- end }}
