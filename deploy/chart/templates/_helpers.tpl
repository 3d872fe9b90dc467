{{- define "kubenode.name" -}}
kubenode-agent-{{ .Release.Name }}
{{- end }}

{{- define "kubenode.labels" -}}
app.kubernetes.io/name: kubenode-agent
kubenode.datapath/profile: {{ .Release.Name | quote }}
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
kubenode-variables-{{ .Release.Name }}-{{ .Values.variables | toYaml | sha256sum | trunc 10 }}
{{- end }}
