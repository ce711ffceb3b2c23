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

{{- define "penstock.executorSelector" -}}
app.kubernetes.io/name: penstock-executor
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "penstock.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}

{{- define "penstock.account" -}}
{{- .Values.serviceAccount.existing | default (include "penstock.name" .) -}}
{{- end -}}

{{- define "penstock.httpSecret" -}}
{{- .Values.http.existingSecret | default (printf "%s-http" (include "penstock.name" .)) -}}
{{- end -}}

{{- define "penstock.sparkSecret" -}}
{{- .Values.executors.existingSecret | default (printf "%s-spark" (include "penstock.name" .)) -}}
{{- end -}}

{{- define "penstock.podSecurity" -}}
{runAsNonRoot: true, runAsUser: 10001, runAsGroup: 10001, fsGroup: 10001, seccompProfile: {type: RuntimeDefault}}
{{- end -}}

{{- define "penstock.containerSecurity" -}}
{allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
{{- end -}}

{{/* A probe inside the container: the HTTP server listens on its loopback address only. */}}
{{- define "penstock.health" -}}
command:
  - python
  - -c
  - import urllib.request as web; web.urlopen("http://127.0.0.1:{{ .Values.http.port }}/health", timeout=8)
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
spark.driver.bindAddress: "${POD_IP}"
# Nobody but executors of this release is let in, and what travels is encrypted, as are files of shuffles.
spark.authenticate: "true"
spark.authenticate.secret.file: /etc/spark-secret/secret
spark.network.crypto.enabled: "true"
spark.io.encryption.enabled: "true"
spark.driver.port: "7078"
spark.blockManager.port: "7079"
{{- end -}}

{{/* The pipeline file: what the chart adds, and over it what the user has written. */}}
{{- define "penstock.pipeline" -}}
{{- $own := dict "state" "/var/lib/penstock/state" -}}
{{- $own = set $own "name" .Release.Name -}}
{{- $tokens := dict "release" (dict "token" "${PENSTOCK_HTTP_TOKEN}" "role" "operator") -}}
{{- $own = set $own "http" (dict "listen" (printf "127.0.0.1:%v" .Values.http.port) "tokens" $tokens) -}}
{{- $spark := dict "driver_memory" .Values.driver.memory "master" (printf "local[%v]" .Values.driver.cores) -}}
{{- if .Values.executors.enabled -}}
{{- $spark = dict "driver_memory" .Values.driver.memory "master" "k8s://https://kubernetes.default.svc" "environment" "none" "conf" (include "penstock.sparkConf" . | fromYaml) -}}
{{- end -}}
{{- $own = set $own "spark" $spark -}}
{{- $user := deepCopy .Values.pipeline -}}
{{- if not $user.name -}}{{- $user = unset $user "name" -}}{{- end -}}
{{- mergeOverwrite $own $user | toYaml -}}
{{- end -}}
