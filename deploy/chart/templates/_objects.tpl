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
{{- include (printf "extender.of%s" (ternary $o.kind "Any" (has $o.kind (list "ClusterRole" "Role" "ValidatingAdmissionPolicy" "ValidatingAdmissionPolicyBinding" "MutatingWebhookConfiguration" "ValidatingWebhookConfiguration" "NetworkPolicy" "PodDisruptionBudget" "Service" "Secret" "Deployment" "StatefulSet" "Job" "CronJob" "PodMonitor" "ServiceMonitor" "PrometheusRule" "Certificate")))) (dict "object" $o "root" $root "name" $name) }}
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
{{- if and (has "placement-extender-admin" (.resourceNames | default list)) (eq $.name "placement-extender-kubectl") }}{{ $_ := set . "resourceNames" (list (include "extender.secrets" $.root | fromJson).admin) }}{{ end }}
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
{{- $policies := .root.Values.config.policies | default dict }}
{{- $own := ternary "placement-extender" .root.Release.Namespace (eq .root.Release.Namespace "kube-system") }}
{{- $exempt := append ($policies.exemptNamespaces | default (list "kube-system")) $own | uniq | sortAlpha }}
{{- $_ := set (index $webhook.namespaceSelector.matchExpressions 0) "values" $exempt }}
{{- if has "*" (dig "exemptions" "labelIn" list $policies) }}
{{- $_ := set $webhook "objectSelector" (dict "matchExpressions" (list (dict "key" "placement.extender.dev/exempt" "operator" "NotIn" "values" (list "true")))) }}
{{- end }}
{{- if hasKey $policies "templates" }}
{{- $rules := initial $webhook.rules }}{{/* the last one is of the default templates */}}
{{- range $kind := keys ($policies.templates | default dict) | sortAlpha }}
{{- $parts := splitList "/" $kind }}{{ $name := last $parts | lower }}
{{- $plural := ternary (printf "%ses" $name) (ternary (printf "%sies" (trimSuffix "y" $name)) (printf "%ss" $name) (hasSuffix "y" $name)) (hasSuffix "s" $name) }}
{{- $rules = append $rules (dict "apiGroups" (list (first $parts)) "apiVersions" (list (index $parts 1)) "resources" (list $plural) "operations" (list "CREATE" "UPDATE") "scope" "*") }}
{{- end }}
{{- $_ := set $webhook "rules" $rules }}
{{- end }}
{{- include "extender.ofValidatingWebhookConfiguration" . }}
{{- end }}

{{- define "extender.ofValidatingWebhookConfiguration" }}
{{- if and .root.Values.policies.kupid (eq .object.kind "ValidatingWebhookConfiguration") }}
{{- $webhook := index .object.webhooks 0 }}{{ $rule := deepCopy (first $webhook.rules) }}
{{- $_ := set $webhook "rules" (append $webhook.rules (set $rule "apiGroups" (list "kupid.gardener.cloud"))) }}
{{- end }}
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

{{- define "extender.ofSecret" }}
{{- if and (eq .name "placement-extender-token") (eq .root.Values.tls.mode "generated") }}
{{- $_ := set .object "type" "Opaque" }}
{{- $_ := unset .object.metadata.annotations "kubernetes.io/service-account.name" }}
{{- if not .object.metadata.annotations }}{{ $_ := unset .object.metadata "annotations" }}{{ end }}
{{- end }}
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
{{- $spec := .object.spec }}
{{- $endpoint := index ($spec.podMetricsEndpoints | default $spec.endpoints) 0 }}
{{- $_ := set $endpoint.tlsConfig "serverName" (printf "placement-extender.%s.svc" .root.Release.Namespace) }}
{{- range list $endpoint.tlsConfig.ca.secret $endpoint.tlsConfig.cert.secret $endpoint.tlsConfig.keySecret }}{{ $_ := set . "name" (include "extender.secrets" $.root | fromJson).prometheus }}{{ end }}
{{- include "extender.ofPrometheusRule" . }}
{{- end }}

{{- define "extender.ofServiceMonitor" }}{{ include "extender.ofPodMonitor" . }}{{ end }}

{{/* With the labels by which Prometheus selects it, and with the address of the runbook in alerts. */}}
{{- define "extender.ofPrometheusRule" }}
{{- with .root.Values.runbook }}
{{- $runbook := . }}
{{- range $.object.spec.groups }}{{ range .rules }}{{ if .alert }}{{ $_ := set .annotations "runbook_url" (printf "%s#%s" $runbook (lower .alert)) }}{{ end }}{{ end }}{{ end }}
{{- end }}
{{- $labels := (get .root.Values (untitle .object.kind)).labels }}
{{- $_ := set .object.metadata "labels" (merge (deepCopy $labels) .object.metadata.labels) }}
{{- toYaml .object }}
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

{{/* A Job has the hash of its content in its name, because its pods cannot be changed: another image is another Job. */}}
{{- define "extender.ofJob" }}
{{- $_ := unset .object.spec "ttlSecondsAfterFinished" }}
{{- include "extender.certificatesPod" . }}
{{- $_ := set .object.metadata "name" (printf "%s-%s" .name (toYaml .object.spec | sha256sum | trunc 8)) }}
{{- toYaml .object }}
{{- end }}

{{- define "extender.ofCronJob" }}
{{- include "extender.certificatesPod" (dict "object" .object.spec.jobTemplate "root" .root) }}
{{- toYaml .object }}
{{- end }}

{{- define "extender.certificatesPod" }}
{{- $tls := .root.Values.tls }}
{{- $container := index .object.spec.template.spec.containers 0 }}
{{- $args := append (initial $container.args) (divf (trimSuffix "h" $tls.duration | float64) 24 | toString) }}
{{- with $tls.names }}{{ $args = concat $args (list "--names" "localhost" "127.0.0.1" "::1") . }}{{ end }}
{{- if eq .root.Values.layout "secondScheduler" }}{{ $args = append $args "--token" }}{{ end }}
{{- $_ := set $container "args" $args }}
{{- include "extender.pod" . }}
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
{{- $checksum := ternary (dict "checksum/config" (include "extender.configMaps" .root | sha256sum)) (dict) (hasKey $spec "volumes") }}
{{- with merge $checksum $v.podAnnotations }}{{ $_ := set $template.metadata "annotations" . }}{{ end }}
{{- range $field := list "imagePullSecrets" "nodeSelector" "tolerations" "affinity" "topologySpreadConstraints" "priorityClassName" }}
{{- with get $v $field }}{{ $_ := set $spec $field . }}{{ end }}
{{- end }}
{{- if not $v.priorityClassName }}{{ $_ := unset $spec "priorityClassName" }}{{ end }}
{{- if $v.hostNetwork }}{{ $_ := set $spec "hostNetwork" true }}{{ $_ := set $spec "dnsPolicy" "ClusterFirstWithHostNet" }}{{ end }}
{{- range $container := $spec.containers }}
{{- $isExtender := eq .name "extender" }}{{ $isScheduler := eq .name "kube-scheduler" }}
{{- $version := regexFind "^v[0-9]+[.][0-9]+[.][0-9]+" $.root.Capabilities.KubeVersion.Version }}
{{- $tag := ternary ($v.scheduler.image.tag | default $version) ($v.image.tag | default $.root.Chart.AppVersion) $isScheduler }}
{{- $image := merge (dict "tag" $tag) (ternary $v.scheduler.image $v.image $isScheduler) }}
{{- $_ := set . "image" (include "extender.image" $image) }}
{{- with $image.pullPolicy }}{{ $_ := set $container "imagePullPolicy" . }}{{ end }}
{{- if or $isExtender $isScheduler }}{{ $_ := set . "resources" (ternary $v.resources $v.scheduler.resources $isExtender) }}{{ end }}
{{- if $isExtender }}
{{- range $field, $value := dict "args" "extraArgs" "env" "extraEnv" "volumeMounts" "extraVolumeMounts" }}
{{- with get $v $value }}{{ $_ := set $container $field (concat (get $container $field | default list) .) }}{{ end }}
{{- end }}
{{- end }}
{{- end }}
{{- if eq (.object.kind | default "Job") "Deployment" }}{{ with $v.extraVolumes }}{{ $_ := set $spec "volumes" (concat $spec.volumes .) }}{{ end }}{{ end }}
{{- range $spec.volumes }}
{{- if eq .name "tls" }}{{ $_ := set .secret "secretName" (include "extender.secrets" $.root | fromJson).server }}{{ end }}
{{- if eq .name "client-tls" }}{{ $_ := set .secret "secretName" (include "extender.secrets" $.root | fromJson).scheduler }}{{ end }}
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
