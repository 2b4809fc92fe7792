{{- define "elasticjob.name" }}{{ .Values.fullnameOverride | default "elasticjob" }}{{ end }}
{{- define "elasticjob.label" }}{{ .Values.nameOverride | default "elasticjob" }}{{ end }}

{{- /* A repository, with the global registry before it where it names none. Takes $ and the repository. */}}
{{- define "elasticjob.repository" }}
{{- $named := regexMatch "^([^/]*[.:][^/]*|localhost)/" (index . 1) }}
{{- with (index . 0).Values.global.imageRegistry }}{{ if not $named }}{{ trimSuffix "/" . }}/{{ end }}{{ end }}
{{- index . 1 }}
{{- end }}

{{- /* An image. Takes $ and the value with repository, tag and digest. */}}
{{- define "elasticjob.image" }}
{{- $image := index . 1 }}
{{- include "elasticjob.repository" (list (index . 0) $image.repository) }}
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

{{- /* The securityContext of a pod. Takes $, that of the manifest, and the fields that are asked for. */}}
{{- define "elasticjob.podSecurity" }}
{{- $user := (index . 0).Values.userId | int64 }}
{{- $ours := deepCopy (index . 1) }}
{{- range $name := list "runAsUser" "runAsGroup" "fsGroup" }}
{{- if and (hasKey $ours $name) (eq $user 0) }}{{ $_ := unset $ours $name }}{{ end }}
{{- if hasKey $ours $name }}{{ $_ := set $ours $name $user }}{{ end }}
{{- end }}
{{- include "elasticjob.over" (list $ours (index . 2)) }}
{{- end }}

{{- /* Where a pod runs. Takes $ and the values of its program. */}}
{{- define "elasticjob.placed" }}
{{- $values := index . 1 }}
{{- with concat (index . 0).Values.global.imagePullSecrets (index . 0).Values.imagePullSecrets | uniq }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- range $name := list "nodeSelector" "tolerations" "affinity" }}
{{- with index $values $name }}
{{ $name }}: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- with $values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- end }}

{{- /* Fields of the pods of masters, as JSON; 65532 is the user that the operator gives them by itself. */}}
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
