{{/* An object of the overlays, as kustomize and the values change it: object, root. Empty where it is left out. */}}
{{- define "extender.object" -}}
{{- $o := .object }}{{ $root := .root }}{{ $v := $root.Values }}
{{- $namespace := $root.Release.Namespace }}{{ $suffix := include "extender.suffix" $root }}
{{- $name := $o.metadata.name }}
{{- $skip := or (and (hasPrefix "ValidatingAdmissionPolicy" $o.kind) (not (include "extender.admissionPolicy" $root)))
      (and (eq $o.kind "NetworkPolicy") (not $v.networkPolicy.enabled))
      (and (eq $o.kind "PodDisruptionBudget") (not $v.podDisruptionBudget.enabled))
      (and (eq $v.tls.mode "certManager") $v.policies.enabled (eq $name "placement-extender-webhook") (has $o.kind (list "Secret" "Role" "RoleBinding")))
      (and (or (eq $o.kind "Issuer") (eq $name "placement-extender-ca")) $v.tls.issuerRef) }}
{{- if not $skip }}
{{- $clusterWide := list "ClusterRole" "ClusterRoleBinding" "ValidatingAdmissionPolicy" "ValidatingAdmissionPolicyBinding" }}
{{- if has $o.kind $clusterWide }}
{{- $_ := set $o.metadata "name" (printf "%s-%s" $name $suffix) }}
{{- else if not (hasSuffix "WebhookConfiguration" $o.kind) }}
{{- $_ := set $o.metadata "namespace" $namespace }}
{{- if regexMatch "^placement-schedulers?-(authentication-reader|lease)$" $name }}
{{- $_ := set $o.metadata "namespace" "kube-system" }}
{{- if $v.nameSuffix }}{{ $_ := set $o.metadata "name" (printf "%s-%s" $name $suffix) }}{{ end }}
{{- end }}
{{- end }}
{{- $_ := set $o.metadata "labels" (merge (include "extender.labels" $root | fromYaml) ($o.metadata.labels | default dict)) }}
{{- if or $v.annotations $o.metadata.annotations }}
{{- $_ := set $o.metadata "annotations" (merge ($o.metadata.annotations | default dict) $v.annotations) }}
{{- end }}
{{- range $o.subjects }}{{ if eq .kind "ServiceAccount" }}{{ $_ := set . "namespace" $namespace }}{{ end }}{{ end }}
{{- if and $o.roleRef (not (hasPrefix "system:" $o.roleRef.name)) (ne $o.roleRef.name "extension-apiserver-authentication-reader") }}
{{- $_ := set $o.roleRef "name" (ternary (printf "%s-%s" $o.roleRef.name $suffix) (ternary $o.metadata.name $o.roleRef.name (eq $o.roleRef.name $name)) (eq $o.roleRef.kind "ClusterRole")) }}
{{- end }}
{{- include (printf "extender.of%s" (ternary $o.kind "Any" (has $o.kind (list "ClusterRole" "Role" "ValidatingAdmissionPolicy" "ValidatingAdmissionPolicyBinding" "MutatingWebhookConfiguration" "ValidatingWebhookConfiguration" "NetworkPolicy" "PodDisruptionBudget" "Service" "Deployment" "StatefulSet" "PodMonitor" "Certificate")))) (dict "object" $o "root" $root "name" $name) }}
{{- end }}
{{- end }}

{{- define "extender.ofAny" }}{{ toYaml .object }}{{ end }}

{{- define "extender.ofClusterRole" }}
{{- $patches := "" }}
{{- if and .root.Values.policies.enabled (eq .name "placement-extender-reader") }}
{{- $patches = include "extender.patch" (dict "root" .root "component" "policies" "kind" .object.kind) }}
{{- else if and .root.Values.bind.enabled (eq .name "placement-extender-writer") }}
{{- $patches = include "extender.patch" (dict "root" .root "component" "bind" "kind" .object.kind) }}
{{- end }}
{{- range fromYamlArray $patches }}{{ $_ := set $.object "rules" (append $.object.rules .value) }}{{ end }}
{{- toYaml .object }}
{{- end }}

{{- define "extender.ofRole" }}
{{- $scheduler := .root.Values.scheduler }}
{{- range .object.rules }}
{{- if and .resourceNames (eq $.name "placement-scheduler-lease") }}{{ $_ := set . "resourceNames" (list $scheduler.name) }}{{ end }}
{{- if and .resourceNames (eq $.name "placement-schedulers-lease") }}
{{- $names := list }}
{{- range $number := until (int $scheduler.count) }}{{ $names = append $names (printf "%s-%d" $scheduler.name $number) }}{{ end }}
{{- $_ := set . "resourceNames" $names }}
{{- end }}
{{- if has "placement-extender-admin" (.resourceNames | default list) }}{{ $_ := set . "resourceNames" (list $.root.Values.tls.secrets.admin) }}{{ end }}
{{- end }}
{{- toYaml .object }}
{{- end }}

{{- define "extender.ofValidatingAdmissionPolicy" }}
{{- $_ := set (index .object.spec.matchConditions 0) "expression" (printf `request.userInfo.username == "system:serviceaccount:%s:placement-extender"` .root.Release.Namespace) }}
{{- if and .root.Values.bind.enabled (eq .name "placement-extender") }}
{{- range include "extender.patch" (dict "root" .root "component" "bind" "kind" .object.kind) | fromYamlArray }}
{{- $_ := set (index $.object.spec.validations 0) "expression" .value }}
{{- end }}
{{- end }}
{{- toYaml .object }}
{{- end }}

{{- define "extender.ofValidatingAdmissionPolicyBinding" }}
{{- $_ := set .object.spec "policyName" .object.metadata.name }}
{{- toYaml .object }}
{{- end }}

{{- define "extender.ofMutatingWebhookConfiguration" }}
{{- $webhook := index .object.webhooks 0 }}
{{- $_ := set $webhook "failurePolicy" .root.Values.policies.failurePolicy }}
{{- $_ := set (index $webhook.namespaceSelector.matchExpressions 0) "values" (list "kube-system" (ternary "placement-extender" .root.Release.Namespace (eq .root.Release.Namespace "kube-system"))) }}
{{- include "extender.ofValidatingWebhookConfiguration" . }}
{{- end }}

{{- define "extender.ofValidatingWebhookConfiguration" }}
{{- range .object.webhooks }}
{{- $_ := set .clientConfig.service "namespace" $.root.Release.Namespace }}
{{- $_ := set . "timeoutSeconds" $.root.Values.policies.timeoutSeconds }}
{{- end }}
{{- if eq .root.Values.tls.mode "certManager" }}
{{- $_ := set .object.metadata "annotations" (merge (dict "cert-manager.io/inject-ca-from" (printf "%s/placement-extender-webhook" .root.Release.Namespace)) (.object.metadata.annotations | default dict)) }}
{{- end }}
{{- toYaml .object }}
{{- end }}

{{- define "extender.ofNetworkPolicy" }}
{{- $v := .root.Values }}{{ $spec := .object.spec }}
{{- $egress := index $spec.egress 0 }}
{{- $ports := list }}
{{- range $v.networkPolicy.apiServerPorts }}{{ $ports = append $ports (dict "port" . "protocol" "TCP") }}{{ end }}
{{- $_ := set $egress "ports" (concat $ports (slice $egress.ports 2)) }}
{{- range $spec.ingress }}
{{- range .from }}{{ $_ := set .namespaceSelector "matchLabels" (dict "kubernetes.io/metadata.name" $v.networkPolicy.metricsNamespace) }}{{ end }}
{{- end }}
{{- if and $v.policies.enabled (eq .name "placement-extender") }}
{{- range include "extender.patch" (dict "root" .root "component" "policies" "kind" .object.kind) | fromYamlArray }}
{{- $_ := set $spec "ingress" (append $spec.ingress .value) }}
{{- end }}
{{- end }}
{{- toYaml .object }}
{{- end }}

{{- define "extender.ofPodDisruptionBudget" }}
{{- $_ := set .object.spec "maxUnavailable" .root.Values.podDisruptionBudget.maxUnavailable }}
{{- toYaml .object }}
{{- end }}

{{- define "extender.ofService" }}
{{- if and .root.Values.service.clusterIP (eq .name "placement-extender") }}{{ $_ := set .object.spec "clusterIP" .root.Values.service.clusterIP }}{{ end }}
{{- toYaml .object }}
{{- end }}

{{- define "extender.ofCertificate" }}
{{- $v := .root.Values }}{{ $spec := .object.spec }}
{{- $secret := get (dict "tls" "server" "scheduler" "scheduler" "prometheus" "prometheus" "admin" "admin") (trimPrefix "placement-extender-" .name) }}
{{- if $secret }}{{ $_ := set $spec "secretName" (get $v.tls.secrets $secret) }}{{ end }}
{{- if ne .name "placement-extender-ca" }}
{{- if or (has "server auth" $spec.usages) (ne $spec.duration "8760h") }}{{ $_ := set $spec "duration" $v.tls.duration }}{{ end }}
{{- with $v.tls.issuerRef }}{{ $_ := set $spec "issuerRef" . }}{{ end }}
{{- end }}
{{- if $spec.dnsNames }}
{{- $names := list }}
{{- range $spec.dnsNames }}{{ $names = append $names (. | replace ".placement-extender.svc" (printf ".%s.svc" $.root.Release.Namespace)) }}{{ end }}
{{- $addresses := list }}
{{- if eq .name "placement-extender-tls" }}
{{- range concat (ternary (list "127.0.0.1") (list) (eq $v.layout "secondScheduler")) (list $v.service.clusterIP | compact) $v.tls.names }}
{{- if regexMatch "^[0-9.]+$|:" . }}{{ $addresses = append $addresses . }}{{ else }}{{ $names = append $names . }}{{ end }}
{{- end }}
{{- end }}
{{- $_ := set $spec "dnsNames" $names }}
{{- with $addresses }}{{ $_ := set $spec "ipAddresses" . }}{{ end }}
{{- end }}
{{- toYaml .object }}
{{- end }}

{{- define "extender.ofPodMonitor" }}
{{- $v := .root.Values }}{{ $spec := .object.spec }}
{{- $endpoint := index $spec.podMetricsEndpoints 0 }}
{{- $_ := set $endpoint.tlsConfig "serverName" (printf "placement-extender.%s.svc" .root.Release.Namespace) }}
{{- range list $endpoint.tlsConfig.ca.secret $endpoint.tlsConfig.cert.secret $endpoint.tlsConfig.keySecret }}{{ $_ := set . "name" $v.tls.secrets.prometheus }}{{ end }}
{{- $labels := .object.metadata.labels }}
{{- if $v.podMonitor.enabled }}
{{- $_ := set .object.metadata "labels" (merge (deepCopy $v.podMonitor.labels) $labels) }}
{{- toYaml .object }}
{{- end }}
{{- if $v.serviceMonitor.enabled }}
{{- $metadata := merge (dict "name" "placement-extender-metrics" "labels" (merge (dict "app.kubernetes.io/component" "metrics") $labels)) .object.metadata }}
---
{{ toYaml (dict "apiVersion" "v1" "kind" "Service" "metadata" $metadata "spec" (dict "clusterIP" "None" "selector" $spec.selector.matchLabels "ports" (list (dict "name" "extender" "port" 8888 "targetPort" "extender" "protocol" "TCP")))) }}
---
{{- $_ := set $spec "selector" (dict "matchLabels" (dict "app.kubernetes.io/component" "metrics" "app.kubernetes.io/instance" .root.Release.Name)) }}
{{- $_ := set $spec "endpoints" $spec.podMetricsEndpoints }}
{{- $_ := unset $spec "podMetricsEndpoints" }}
{{- $_ := set $metadata "labels" (merge (deepCopy $v.serviceMonitor.labels) $labels) }}
{{ toYaml (dict "apiVersion" .object.apiVersion "kind" "ServiceMonitor" "metadata" $metadata "spec" $spec) }}
{{- end }}
{{- end }}

{{- define "extender.ofStatefulSet" }}
{{- $_ := set .object.spec "replicas" .root.Values.scheduler.count }}
{{- include "extender.pod" . }}
{{- toYaml .object }}
{{- end }}

{{- define "extender.ofDeployment" }}
{{- $_ := set .object.spec "replicas" .root.Values.replicas }}
{{- if eq .root.Values.layout "schedulers" }}{{ $_ := set .object.spec.template.spec "schedulerName" "default-scheduler" }}{{ end }}
{{- if .root.Values.policies.enabled }}
{{- $components := ternary (list "policies" "policies-cert-manager") (list "policies") (eq .root.Values.tls.mode "certManager") }}
{{- range $components }}{{ include "extender.added" (merge (dict "added" (include "extender.patch" (dict "root" $.root "component" . "kind" "Deployment") | fromYaml)) $) }}{{ end }}
{{- end }}
{{- include "extender.pod" . }}
{{- toYaml .object }}
{{- end }}

{{/* Adds what a strategic patch of a component adds to the extender's container and the volumes of a pod: object, added. */}}
{{- define "extender.added" }}
{{- $spec := .object.spec.template.spec }}{{ $new := .added.spec.template.spec }}
{{- range $container := $spec.containers }}
{{- if eq .name "extender" }}
{{- range $field, $items := omit (index $new.containers 0) "name" }}
{{- $have := get $container $field | default list }}
{{- range $items }}{{ if not (has . $have) }}{{ $have = append $have . }}{{ end }}{{ end }}
{{- $_ := set $container $field $have }}
{{- end }}
{{- end }}
{{- end }}
{{- with $new.volumes }}{{ $_ := set $spec "volumes" (concat $spec.volumes .) }}{{ end }}
{{- end }}

{{/* Changes the pod template of a workload by the values: object, root. */}}
{{- define "extender.pod" }}
{{- $v := .root.Values }}{{ $template := .object.spec.template }}{{ $spec := $template.spec }}
{{- $_ := set $template.metadata "labels" (merge $template.metadata.labels $v.podLabels) }}
{{- $checksum := include "extender.configMaps" .root | sha256sum }}
{{- $_ := set $template.metadata "annotations" (merge (dict "checksum/config" $checksum) $v.podAnnotations) }}
{{- range $field := list "imagePullSecrets" "nodeSelector" "tolerations" "affinity" "topologySpreadConstraints" "priorityClassName" }}
{{- with get $v $field }}{{ $_ := set $spec $field . }}{{ end }}
{{- end }}
{{- if not $v.priorityClassName }}{{ $_ := unset $spec "priorityClassName" }}{{ end }}
{{- if $v.hostNetwork }}{{ $_ := set $spec "hostNetwork" true }}{{ $_ := set $spec "dnsPolicy" "ClusterFirstWithHostNet" }}{{ end }}
{{- range $container := $spec.containers }}
{{- $isExtender := eq .name "extender" }}
{{- $image := ternary (merge (dict "tag" ($v.image.tag | default $.root.Chart.AppVersion)) $v.image) $v.scheduler.image $isExtender }}
{{- $_ := set . "image" (include "extender.image" $image) }}
{{- with $image.pullPolicy }}{{ $_ := set $container "imagePullPolicy" . }}{{ end }}
{{- $_ := set . "resources" (ternary $v.resources $v.scheduler.resources $isExtender) }}
{{- if $isExtender }}
{{- range $field, $value := dict "args" "extraArgs" "env" "extraEnv" "volumeMounts" "extraVolumeMounts" }}
{{- with get $v $value }}{{ $_ := set $container $field (concat (get $container $field | default list) .) }}{{ end }}
{{- end }}
{{- end }}
{{- end }}
{{- if eq .object.kind "Deployment" }}{{ with $v.extraVolumes }}{{ $_ := set $spec "volumes" (concat $spec.volumes .) }}{{ end }}{{ end }}
{{- range $spec.volumes }}
{{- if eq .name "tls" }}{{ $_ := set .secret "secretName" $v.tls.secrets.server }}{{ end }}
{{- if eq .name "client-tls" }}{{ $_ := set .secret "secretName" $v.tls.secrets.scheduler }}{{ end }}
{{- end }}
{{- end }}

{{/* The data of the ConfigMaps, by name. */}}
{{- define "extender.configMaps" -}}
{{- $v := .Values }}{{ $data := dict "extender.yaml" (include "extender.config" .) }}
{{- $maps := dict "placement-extender-config" $data }}
{{- if eq $v.layout "secondScheduler" }}
{{- $_ := set $data "kube-scheduler.yaml" (include "extender.schedulerConfig" (dict "root" . "file" "second-scheduler/kube-scheduler.yaml" "name" $v.scheduler.name)) }}
{{- else if eq $v.layout "schedulers" }}
{{- $files := dict }}
{{- range $number := until (int $v.scheduler.count) }}
{{- $config := include "extender.schedulerConfig" (dict "root" $ "file" "schedulers/placement-scheduler-0.yaml" "name" (printf "%s-%d" $v.scheduler.name $number)) }}
{{- $_ := set $files (printf "placement-scheduler-%d.yaml" $number) $config }}
{{- end }}
{{- $_ := set $maps "placement-schedulers-config" $files }}
{{- end }}
{{- toYaml $maps }}
{{- end }}
