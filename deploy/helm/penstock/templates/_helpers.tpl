{{- define "penstock.name" -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "penstock.labels" -}}
app.kubernetes.io/name: penstock
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "penstock.selector" -}}
app.kubernetes.io/name: penstock
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "penstock.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}

{{- define "penstock.account" -}}
{{- .Values.serviceAccount.existing | default (include "penstock.name" .) -}}
{{- end -}}

{{- define "penstock.restSecret" -}}
{{- .Values.rest.existingSecret | default (printf "%s-rest" (include "penstock.name" .)) -}}
{{- end -}}

{{/* Spark's options on Kubernetes, where the driver is a pod that was not started by spark-submit ("client mode"). */}}
{{- define "penstock.sparkConf" -}}
spark.kubernetes.namespace: {{ .Release.Namespace | quote }}
spark.kubernetes.container.image: {{ include "penstock.image" . | quote }}
spark.kubernetes.container.image.pullPolicy: {{ .Values.image.pullPolicy | quote }}
{{- with .Values.imagePullSecrets }}
spark.kubernetes.container.image.pullSecrets: {{ range $i, $one := . }}{{ if $i }},{{ end }}{{ $one.name }}{{ end }}
{{- end }}
# Kubernetes removes the executors together with this pod.
spark.kubernetes.driver.pod.name: "${POD_NAME}"
spark.kubernetes.authenticate.caCertFile: /var/run/secrets/kubernetes.io/serviceaccount/ca.crt
spark.kubernetes.authenticate.oauthTokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token
spark.kubernetes.authenticate.executor.serviceAccountName: {{ include "penstock.account" . | quote }}
# There is no service that belongs to Spark's application: this chart has its own.
spark.kubernetes.driver.service.deleteOnTermination: "false"
spark.kubernetes.executor.podTemplateFile: /etc/penstock/executor.yaml
spark.executor.instances: {{ .Values.executors.instances | quote }}
spark.executor.cores: {{ .Values.executors.cores | quote }}
spark.executor.memory: {{ .Values.executors.memory | quote }}
spark.executor.memoryOverhead: {{ .Values.executors.memoryOverhead | quote }}
spark.driver.host: {{ printf "%s.%s.svc" (include "penstock.name" .) .Release.Namespace | quote }}
spark.driver.bindAddress: "0.0.0.0"
spark.driver.port: "7078"
spark.blockManager.port: "7079"
{{- end -}}

{{/* The pipeline file: what the chart adds, and over it what the user has written. */}}
{{- define "penstock.pipeline" -}}
{{- $own := dict "state" "/var/lib/penstock/state" -}}
{{- $own = set $own "name" .Release.Name -}}
{{- $service := include "penstock.name" . -}}
{{- $own = set $own "signals" (dict "rest" (dict "listen" (printf "0.0.0.0:%v" .Values.rest.port) "token" "${PENSTOCK_REST_TOKEN}" "hosts" (list $service (printf "%s.%s" $service .Release.Namespace) (printf "%s.%s.svc" $service .Release.Namespace) (printf "%s.%s.svc.cluster.local" $service .Release.Namespace)))) -}}
{{- $spark := dict "driver_memory" .Values.driver.memory "master" (printf "local[%v]" .Values.driver.cores) -}}
{{- if .Values.executors.enabled -}}
{{- $spark = dict "driver_memory" .Values.driver.memory "master" "k8s://https://kubernetes.default.svc" "environment" "none" "conf" (include "penstock.sparkConf" . | fromYaml) -}}
{{- end -}}
{{- $own = set $own "spark" $spark -}}
{{- $user := deepCopy .Values.pipeline -}}
{{- if not $user.name -}}{{- $user = unset $user "name" -}}{{- end -}}
{{- mergeOverwrite $own $user | toYaml -}}
{{- end -}}
