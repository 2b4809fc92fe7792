{{- /* Name, namespace and labels of a monitoring object. Takes $, the object of config/, and its value of metrics. */}}
{{- define "elasticjob.monitoringMetadata" -}}
{{- $found := index . 1 }}
{{- $values := index . 2 }}
name: {{ $found.metadata.name | replace "elasticjob" (include "elasticjob.name" (index . 0)) }}
namespace: {{ $values.namespace | default (index . 0).Release.Namespace | quote }}
labels: {{- include "elasticjob.labels" (list (index . 0) (index $found.metadata.labels "app.kubernetes.io/component") $values.labels) | nindent 2 }}
{{- end }}

{{- /* A PodMonitor or ServiceMonitor of config/. Takes $, its file, its value of metrics, the namespace of its pods. */}}
{{- define "elasticjob.monitor" }}
{{- $found := (index . 0).Files.Get (index . 1) | fromYaml }}
{{- $values := index . 2 }}
{{- $spec := $found.spec }}
{{- if index . 3 }}{{ $_ := set $spec "namespaceSelector" (dict "matchNames" (list (index . 3))) }}{{ end }}
{{- if hasKey $spec.selector.matchLabels "app.kubernetes.io/name" }}
{{- $_ := set $spec.selector.matchLabels "app.kubernetes.io/name" (include "elasticjob.label" (index . 0)) }}
{{- end }}
{{- range concat (default list $spec.podMetricsEndpoints) (default list $spec.endpoints) }}
{{- if $values.interval }}{{ $_ := set . "interval" $values.interval }}{{ end }}
{{- if $values.scrapeTimeout }}{{ $_ := set . "scrapeTimeout" $values.scrapeTimeout }}{{ end }}
{{- end }}
---
apiVersion: {{ $found.apiVersion }}
kind: {{ $found.kind }}
metadata: {{- include "elasticjob.monitoringMetadata" (list (index . 0) $found $values) | nindent 2 }}
spec: {{- toYaml $spec | nindent 2 }}
{{- end }}
