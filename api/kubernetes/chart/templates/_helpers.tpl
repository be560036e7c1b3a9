{{- define "advisor.labels" -}}
app.kubernetes.io/name: advisor
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- end }}

{{- define "advisor.metadata" -}}
name: {{ .root.Release.Name }}-{{ .part }}
namespace: {{ .root.Release.Namespace }}
labels:
  {{- include "advisor.labels" . | nindent 2 }}
  app.kubernetes.io/managed-by: {{ .root.Release.Service }}
  helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version }}
{{- end }}

{{- define "advisor.image" -}}
image: {{ printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- end }}

{{- define "advisor.nobody" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "advisor.closed" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "advisor.token" -}}
- name: ADVISOR_TOKEN
  valueFrom:
    secretKeyRef: {name: {{ .root.Values.tokens.secretName }}, key: {{ .key }}}
{{- end }}

{{- define "advisor.home" -}}
- name: ADVISOR_HOME
  # A folder below the mount, which advisor makes for its user alone.
  value: /var/lib/advisor/home
{{- with .Values.service.databaseSecretName }}
- name: ADVISOR_DATABASE_URL
  valueFrom:
    secretKeyRef: {name: {{ . }}, key: url}
{{- end }}
{{- end }}
