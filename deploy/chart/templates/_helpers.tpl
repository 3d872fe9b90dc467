{{- define "kubenode.name" -}}
{{ .Values.fullnameOverride | default (printf "%s-%s" (.Values.nameOverride | default "kubenode-agent") .Release.Name) }}
{{- end }}

{{/* The name of an object beside the agent: (list CONTEXT PART). */}}
{{- define "kubenode.part" -}}
{{- $root := index . 0 -}}
{{- if or $root.Values.fullnameOverride $root.Values.nameOverride }}{{ include "kubenode.name" $root }}-{{ index . 1 -}}
{{- else }}kubenode-{{ index . 1 }}-{{ $root.Release.Name }}{{ end }}
{{- end }}

{{/* No override changes these: the DaemonSet, the monitors and kubectl's plugin find the pods by them. */}}
{{- define "kubenode.selector" -}}
app.kubernetes.io/name: kubenode-agent
kubenode.datapath/profile: {{ .Release.Name | quote }}
{{- end }}

{{/* The labels of an object: (list CONTEXT LABELS), with labels of its own, which come before those of all objects. */}}
{{- define "kubenode.labels" -}}
{{- $root := index . 0 -}}
{{- $chart := printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" -}}
{{- $recommended := dict "app.kubernetes.io/name" "kubenode-agent" "app.kubernetes.io/instance" $root.Release.Name -}}
{{- $_ := set $recommended "app.kubernetes.io/version" $root.Chart.AppVersion -}}
{{- $_ := set $recommended "app.kubernetes.io/component" "agent" -}}
{{- $_ := set $recommended "app.kubernetes.io/part-of" $root.Chart.Name -}}
{{- $_ := set $recommended "app.kubernetes.io/managed-by" $root.Release.Service -}}
{{- $_ := set $recommended "helm.sh/chart" $chart -}}
{{- mergeOverwrite $recommended $root.Values.commonLabels (index . 1) | toYaml }}
{{- end }}

{{/* The accounts that a policy restricts: those of all agents, or that of a release with another name. */}}
{{- define "kubenode.accounts" -}}
{{- $name := include "kubenode.name" . -}}
{{- if hasPrefix "kubenode-agent" $name -}}
request.userInfo.username.matches('^system:serviceaccount:[^:]+:kubenode-agent')
{{- else -}}
request.userInfo.username == 'system:serviceaccount:{{ .Release.Namespace }}:{{ $name }}'
{{- end }}
{{- end }}

{{/* As in the overlays of kustomize: profiles on the same node need ports of their own. */}}
{{- define "kubenode.port" -}}
{{- $ports := dict "aks_dual_stack" 9463 "eni_policy_routing" 9464 "cilium_migration" 9465 "audit" 9466 "symmetric_routing" 9467 -}}
{{ .Values.metrics.port | default (get $ports .Values.profile) }}
{{- end }}

{{/* A digest names one image for ever; a tag may be moved. */}}
{{- define "kubenode.image" -}}
{{- with .Values.image -}}
{{- if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end }}
{{- end }}

{{/* A twin needs pivot_root(2), which the default profile of containerd and Docker forbids. */}}
{{- define "kubenode.seccomp" -}}
{{- $audits := get .Values.variables (printf "%s_audit" .Values.profile) -}}
{{- $rehearses := get .Values.variables (printf "%s_rehearse" .Values.profile) -}}
{{- if or (eq .Values.profile "audit") $audits $rehearses }}Unconfined{{ else }}RuntimeDefault{{ end }}
{{- end }}

{{/* Changed variables are a ConfigMap of another name, so that the DaemonSet rolls out, node by node. */}}
{{- define "kubenode.variables" -}}
{{ include "kubenode.part" (list . "variables") }}-{{ .Values.variables | toYaml | sha256sum | trunc 10 }}
{{- end }}
