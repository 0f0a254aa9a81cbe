{{- /*
`hekla install` ships these templates rendered by helm: run `python -m tools.chart` after a change. How it
applies values to the rendered objects is in src/hekla/cli/chart_values.py; a test compares it with helm.
*/ -}}

{{- define "hekla.image" -}}
{{- $b := .Values.basic -}}
{{- if $b.image -}}
{{ $b.image }}
{{- else if $b.image_digest -}}
{{ printf "%s/%s@%s" $b.image_registry $b.image_name $b.image_digest }}
{{- else -}}
{{ printf "%s/%s:%s" $b.image_registry $b.image_name (default .Chart.AppVersion $b.image_tag_version) }}
{{- end -}}
{{- end -}}

{{- define "hekla.labels" -}}
app.kubernetes.io/part-of: hekla
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.custom.common_labels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- /* Selects a component's pods. Note: never change it; the selector of a Deployment is immutable. */ -}}
{{- define "hekla.selector" -}}
app: {{ .root.Release.Name }}-{{ .name }}
{{- end -}}

{{- define "hekla.account" }}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ .root.Release.Name }}-{{ .name }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "hekla.labels" .root | nindent 4 }}
automountServiceAccountToken: false
{{- end }}

{{- /* Binds the component's service account to its Role or ClusterRole. */ -}}
{{- define "hekla.binding" }}
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ .kind }}Binding
metadata:
  name: {{ .root.Release.Name }}-{{ .name }}
  {{- if eq .kind "Role" }}
  namespace: {{ .root.Release.Namespace }}
  {{- end }}
  labels:
    {{- include "hekla.labels" .root | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ .kind }}
  name: {{ .root.Release.Name }}-{{ .name }}
subjects:
- kind: ServiceAccount
  name: {{ .root.Release.Name }}-{{ .name }}
  namespace: {{ .root.Release.Namespace }}
{{- end }}

{{- define "hekla.budget" }}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ .root.Release.Name }}-{{ .name }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "hekla.labels" .root | nindent 4 }}
spec:
  maxUnavailable: 1
  selector:
    matchLabels:
      {{- include "hekla.selector" . | nindent 6 }}
{{- end }}

{{- /* Only the component's own ports are reachable. Kubelets reach the probes in any case. */ -}}
{{- define "hekla.networkpolicy" }}
{{- if .root.Values.custom.network_policy_enable }}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: {{ .root.Release.Name }}-{{ .name }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "hekla.labels" .root | nindent 4 }}
spec:
  podSelector:
    matchLabels:
      {{- include "hekla.selector" . | nindent 6 }}
  policyTypes: [Ingress]
  {{- if not .scraped }}
  # The API server calls webhooks from an address that no selector describes.
  ingress:
  - ports:
    - {port: {{ .portName }}, protocol: TCP}
  {{- else if index .root.Values.custom (printf "%s_metrics_enable" .key) }}
  ingress:
  - ports:
    - {port: {{ .portName }}, protocol: TCP}
    {{- with .root.Values.custom.network_policy_metrics_from }}
    from:
      {{- toYaml . | nindent 6 }}
    {{- end }}
  {{- end }}
{{- end }}
{{- end }}

{{- /* The rights to ask the API server about the tokens of those who read metrics. */ -}}
{{- define "hekla.reviews" }}
{{- if and .root.Values.custom.metrics_secure_enable (index .root.Values.custom (printf "%s_metrics_enable" .key)) }}
- apiGroups: [authentication.k8s.io]
  resources: [tokenreviews]
  verbs: [create]
- apiGroups: [authorization.k8s.io]
  resources: [subjectaccessreviews]
  verbs: [create]
{{- end }}
{{- end }}

{{- define "hekla.service" }}
apiVersion: v1
kind: Service
metadata:
  name: {{ .root.Release.Name }}-{{ .name }}-service
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "hekla.labels" .root | nindent 4 }}
    {{- include "hekla.selector" . | nindent 4 }}
  {{- if .scraped }}
  annotations:
    prometheus.io/path: /metrics
    prometheus.io/port: {{ .port | quote }}
    {{- if .root.Values.custom.metrics_secure_enable }}
    prometheus.io/scheme: https
    {{- end }}
    prometheus.io/scrape: "true"
  {{- end }}
spec:
  ports:
  - name: {{ .portName }}
    port: {{ .port }}
    protocol: TCP
    targetPort: {{ .portName }}
  selector:
    {{- include "hekla.selector" . | nindent 4 }}
  type: ClusterIP
  {{- with .root.Values.service.ipFamilyPolicy }}
  ipFamilyPolicy: {{ . }}
  {{- end }}
  {{- with .root.Values.service.ipFamilies }}
  ipFamilies:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}

{{- /* The Deployment up to its container's resources. `key` is the prefix of its values. */ -}}
{{- define "hekla.deployment" }}
{{- $c := .root.Values.custom }}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .root.Release.Name }}-{{ .name }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "hekla.labels" .root | nindent 4 }}
    {{- include "hekla.selector" . | nindent 4 }}
    {{- with index $c (printf "%s_labels" .key) }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  replicas: {{ index $c (printf "%s_replicas" .key) }}
  {{- if and (eq .key "controller") $c.controller_history_enable $c.controller_history_claim }}
  strategy: {type: Recreate} # two pods cannot have the volume
  {{- end }}
  selector:
    matchLabels:
      {{- include "hekla.selector" . | nindent 6 }}
  template:
    metadata:
      labels:
        {{- include "hekla.labels" .root | nindent 8 }}
        {{- include "hekla.selector" . | nindent 8 }}
        {{- with index $c (printf "%s_podLabels" .key) }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    spec:
      serviceAccountName: {{ .root.Release.Name }}-{{ .name }}
      automountServiceAccountToken: true
      enableServiceLinks: false
      priorityClassName: system-cluster-critical
      {{- with .root.Values.basic.image_pull_secret }}
      imagePullSecrets:
      - name: {{ . }}
      {{- end }}
      securityContext:
        {{- toYaml (default $c.default_sc (index $c (printf "%s_sc" .key))) | nindent 8 }}
      {{- with default $c.default_affinity (index $c (printf "%s_affinity" .key)) }}
      affinity:
        {{- toYaml . | nindent 8 }}
      {{- else }}
      affinity:
        podAntiAffinity:
          preferredDuringSchedulingIgnoredDuringExecution:
          - weight: 100
            podAffinityTerm:
              topologyKey: kubernetes.io/hostname
              labelSelector:
                matchLabels:
                  {{- include "hekla.selector" $ | nindent 18 }}
      {{- end }}
      {{- with default $c.default_tolerations (index $c (printf "%s_tolerations" .key)) }}
      tolerations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with default $c.default_ns (index $c (printf "%s_ns" .key)) }}
      nodeSelector:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      containers:
      - name: {{ .name }}
        image: {{ include "hekla.image" .root | quote }}
        imagePullPolicy: {{ .root.Values.basic.image_pull_policy }}
        securityContext:
          {{- toYaml (default $c.default_csc (index $c (printf "%s_main_csc" .key))) | nindent 10 }}
        resources:
          {{- toYaml (index $c (printf "%s_resources" .key)) | nindent 10 }}
{{- end }}

{{- /* Flags and probes that scheduler and controllers share. */ -}}
{{- define "hekla.flags" -}}
- --leader-elect={{ .root.Values.custom.leader_elect_enable }}
- --leader-elect-resource-namespace={{ .root.Release.Namespace }}
- --enable-healthz
- --healthz-address=:11251
- --kube-api-qps={{ index .root.Values.custom (printf "%s_kube_api_qps" .key) }}
- --kube-api-burst={{ index .root.Values.custom (printf "%s_kube_api_burst" .key) }}
{{- if index .root.Values.custom (printf "%s_metrics_enable" .key) }}
- --enable-metrics
- --listen-address=:{{ .port }}
{{- if .root.Values.custom.metrics_secure_enable }}
- --metrics-secure
{{- end }}
{{- end }}
{{- with index .root.Values.custom (printf "%s_log_level" .key) }}
- -v={{ . }}
{{- end }}
{{- end -}}

{{- define "hekla.probes" -}}
ports:
- {name: health, containerPort: 11251}
{{- if index .root.Values.custom (printf "%s_metrics_enable" .key) }}
- {name: metrics, containerPort: {{ .port }}}
{{- end }}
livenessProbe:
  httpGet: {path: /livez, port: health}
  initialDelaySeconds: 10
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet: {path: /readyz, port: health}
  periodSeconds: 5
  timeoutSeconds: 5
{{- end -}}
