{{/* The folder of the layout in deploy/overlays. */}}
{{- define "extender.overlay" -}}{{ kebabcase .Values.layout }}{{- end }}

{{/* What the names of objects of no namespace end with, as in names.yaml of the overlays. */}}
{{- define "extender.suffix" -}}{{ .Values.nameSuffix | default (include "extender.overlay" .) }}{{- end }}

{{/* Whether admission policies are installed: as the value says, else where the cluster has the kind: from Kubernetes 1.30 on. */}}
{{- define "extender.admissionPolicy" -}}
{{- if kindIs "bool" .Values.admissionPolicy.enabled }}{{ if .Values.admissionPolicy.enabled }}yes{{ end }}
{{- else if semverCompare ">=1.30-0" .Capabilities.KubeVersion.Version }}yes{{ end }}
{{- end }}

{{/* The files with the objects of the layout and of the values, as a JSON list. */}}
{{- define "extender.files" -}}
{{- $files := list "base/service-account" "base/reader" "base/writer" "base/admission" }}
{{- if eq .Values.layout "secondScheduler" }}
{{- $files = concat $files (list "overlays/second-scheduler/scheduler" "overlays/second-scheduler/extender-token" "overlays/second-scheduler/deployment" "overlays/second-scheduler/disruption-budget" "overlays/second-scheduler/network-policy") }}
{{- else }}
{{- $files = concat $files (list "base/lease" "overlays/service/service" "overlays/service/leader" "overlays/service/deployment" "overlays/service/disruption-budget" "overlays/service/network-policy") }}
{{- end }}
{{- if eq .Values.layout "schedulers" }}{{ $files = concat $files (list "overlays/schedulers/roles" "overlays/schedulers/schedulers") }}{{ end }}
{{- if .Values.policies.enabled }}{{ $files = concat $files (list "policies/webhooks" "policies/secret" "policies/service" "policies/role" "policies/admission") }}{{ end }}
{{- if and .Values.policies.enabled .Values.userRoles.aggregate }}{{ $files = append $files "user-roles/roles" }}{{ end }}
{{- if .Values.kubectlRole.enabled }}{{ $files = append $files "kubectl/role" }}{{ end }}
{{- if .Values.podMonitor.enabled }}{{ $files = append $files "monitoring/pod-monitor" }}{{ end }}
{{- if .Values.serviceMonitor.enabled }}{{ $files = append $files "monitoring/service-monitor/service-monitor" }}{{ end }}
{{- if .Values.prometheusRule.enabled }}{{ $files = append $files "monitoring/rules/prometheus-rule" }}{{ end }}
{{- if eq .Values.tls.mode "generated" }}{{ $files = concat $files (list "certificates/account" "certificates/secrets" "certificates/jobs") }}
{{- if eq .Values.layout "secondScheduler" }}{{ $files = append $files "token/role" }}{{ end }}
{{- end }}
{{- if eq .Values.tls.mode "certManager" }}
{{- $files = append $files "overlays/service-cert-manager/certificates" }}
{{- if .Values.policies.enabled }}{{ $files = append $files "policies-cert-manager/certificate" }}{{ end }}
{{- end }}
{{- toJson $files }}
{{- end }}

{{/* The patch that a component of kustomize has for a kind: root, component, kind. */}}
{{- define "extender.patch" -}}
{{- range (.root.Files.Get (printf "files/%s/kustomization.yaml" .component) | fromYaml).patches }}
{{- if regexMatch (printf "^%s$" (dig "target" "kind" "-" .)) $.kind }}{{ .patch }}{{ end }}
{{- end }}
{{- end }}

{{/* The names of the Secrets by use, as JSON. Generated certificates are in the Secrets that account.yaml names. */}}
{{- define "extender.secrets" -}}
{{- if eq .Values.tls.mode "generated" }}
{{- dict "server" "placement-extender-tls" "scheduler" "placement-extender-scheduler" "prometheus" "placement-extender-prometheus" "admin" "placement-extender-admin" | toJson }}
{{- else }}{{ toJson .Values.tls.secrets }}{{ end }}
{{- end }}

{{/* The name of an image: repository, tag, digest. */}}
{{- define "extender.image" -}}
{{- if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ .tag }}{{ end }}
{{- end }}

{{/* The labels that Helm's users expect, and those of the values, as YAML. */}}
{{- define "extender.labels" -}}
app.kubernetes.io/name: placement-extender
app.kubernetes.io/part-of: placement-extender
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name (.Chart.Version | replace "+" "_") }}
{{- with .Values.labels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* extender.yaml of the layout, what the values add, and config over both. */}}
{{- define "extender.config" -}}
{{- $config := .Files.Get (printf "files/overlays/%s/extender.yaml" (include "extender.overlay" .)) | fromYaml }}
{{- if .Values.bind.enabled }}{{ $_ := set $config.server "paths" (dict "bind" "/bind") }}{{ end }}
{{- with .Values.policies }}
{{- if .enabled }}
{{- $webhook := dict "failurePolicy" .failurePolicy "timeout" (printf "%ds" (int .timeoutSeconds)) }}
{{- if eq $.Values.tls.mode "certManager" }}
{{- $_ := merge $webhook (dict "certificates" "cert-manager" "certFile" "/etc/placement-extender-webhook/tls.crt" "keyFile" "/etc/placement-extender-webhook/tls.key") }}
{{- end }}
{{- $_ := set $config "policies" (dict "enabled" true "kupid" .kupid "webhook" $webhook) }}
{{- end }}
{{- end }}
{{- mergeOverwrite $config (deepCopy .Values.config) | toYaml }}
{{- end }}

{{/* kube-scheduler.yaml, which `extender config generate` has written for the overlay, with the values: root, file, name. */}}
{{- define "extender.schedulerConfig" -}}
{{- $v := .root.Values }}
{{- $config := .root.Files.Get (printf "files/overlays/%s" .file) | fromYaml }}
{{- $_ := set $config "percentageOfNodesToScore" $v.scheduler.percentageOfNodesToScore }}
{{- $_ := set $config.leaderElection "resourceName" .name }}
{{- $name := .name }}
{{- range $number, $profile := $config.profiles }}
{{- $_ := set $profile "schedulerName" (ternary $name (printf "%s-all-nodes" $name) (eq $number 0)) }}
{{- end }}
{{- $extender := index $config.extenders 0 }}
{{- $_ := set $extender "urlPrefix" ($extender.urlPrefix | replace ".placement-shared." (printf ".%s." .root.Release.Namespace)) }}
{{- if $v.bind.enabled }}{{ $_ := set $extender "bindVerb" "bind" }}{{ end }}
{{- mergeOverwrite $config (deepCopy $v.scheduler.extraConfig) | toYaml }}
{{- end }}
