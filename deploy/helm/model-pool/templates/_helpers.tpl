{{- define "model-pool.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 30 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 30 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 30 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "model-pool.selector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "model-pool.labels" -}}
{{ include "model-pool.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "model-pool.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "model-pool.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "model-pool.image" -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}

{{- define "model-pool.nodeImage" -}}
{{- $repository := default .Values.image.repository .Values.nodes.image.repository -}}
{{- $tag := default (default .Chart.AppVersion .Values.image.tag) .Values.nodes.image.tag -}}
{{- printf "%s:%s" $repository $tag -}}
{{- end -}}

{{- define "model-pool.scheme" -}}
{{- ternary "https" "http" (ne .Values.controller.tls.existingSecret "") -}}
{{- end -}}

{{- define "model-pool.basePath" -}}
{{- dig "server" "base_path" "/llm" .Values.config | trimSuffix "/" -}}
{{- end -}}

{{- /* The name of the Deployment with this number of a shape: at most 46 characters, so that its pods are names of nodes. */ -}}
{{- define "model-pool.deployment" -}}
{{- $name := printf "%s-%s-%d" (include "model-pool.fullname" .root) (.shape.name | lower | replace "_" "-") (int .number) -}}
{{- if gt (len $name) 46 -}}
{{- fail (printf "the Deployment %s would have a name of %d characters, and 46 are allowed; set a shorter fullnameOverride or nodes.shapes[].name" $name (len $name)) -}}
{{- end -}}
{{- $name -}}
{{- end -}}

{{- /* model-pool.yaml of the controller, as an object. */ -}}
{{- define "model-pool.config" -}}
{{- $root := . -}}
{{- $server := dict "listen" "0.0.0.0:8080" -}}
{{- if .Values.controller.tls.existingSecret -}}
{{- $_ := set $server "tls" (dict "cert" "/etc/model-pool-tls/tls.crt" "key" "/etc/model-pool-tls/tls.key") -}}
{{- end -}}
{{- $auth := dict "inference" "key" -}}
{{- if .Values.controller.adminKey.existingSecret -}}
{{- $_ := set $auth "first_admin_key_file" "/etc/model-pool-secrets/admin-key" -}}
{{- end -}}
{{- if and .Values.serviceMonitor.enabled (not .Values.serviceMonitor.existingSecret) -}}
{{- $_ := set $auth "metrics" "open" -}}
{{- end -}}
{{- $config := dict
    "server" $server
    "auth" $auth
    "state" (dict "dir" "/var/lib/model-pool/data")
    "sources" (dict "cache_dir" "/var/lib/model-pool/weights")
    "catalog" (dict "models_dir" "/etc/model-pool-models" "model_reference" "/etc/model-pool/model_reference.json") -}}
{{- range $key := list "kind" "name" "shapes" -}}
{{- if hasKey (default dict $root.Values.config.cluster) $key -}}
{{- fail (printf "config.cluster.%s is what the chart writes from nodes.shapes and the name of the release; remove it" $key) -}}
{{- end -}}
{{- end -}}
{{- if .Values.nodes.shapes -}}
{{- $deployments := dict -}}
{{- $shapes := list -}}
{{- range $shape := .Values.nodes.shapes -}}
{{- $names := list -}}
{{- range $number := untilStep 1 (int (add1 (int $shape.count))) 1 -}}
{{- $names = append $names (include "model-pool.deployment" (dict "root" $root "shape" $shape "number" $number)) -}}
{{- end -}}
{{- if hasKey $deployments $shape.name -}}
{{- fail (printf "nodes.shapes has the name %s twice" $shape.name) -}}
{{- end -}}
{{- $_ := set $deployments $shape.name $names -}}
{{- $entry := dict "name" $shape.name "gpus" (int $shape.gpus) "memory" $shape.memory -}}
{{- if hasKey $shape "costPerHour" -}}
{{- $_ := set $entry "cost_per_hour" $shape.costPerHour -}}
{{- end -}}
{{- $shapes = append $shapes $entry -}}
{{- end -}}
{{- $_ := set $config "cluster" (dict
    "kind" "kubernetes"
    "name" (include "model-pool.fullname" .)
    "shapes" $shapes
    "kubernetes" (dict "deployments" $deployments)) -}}
{{- $_ := set $config "node" (dict "join_token_file" "/etc/model-pool-secrets/join-token") -}}
{{- end -}}
{{- toYaml (mergeOverwrite $config (deepCopy .Values.config)) -}}
{{- end -}}

{{- define "model-pool.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "model-pool.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}
