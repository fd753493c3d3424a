{{- /* A CRD as it stands in files/crd, for kubectl as well; here it gets labels and what becomes of it on uninstall. */}}
{{- define "pushpull.crd" -}}
{{- with .root -}}
{{- $crd := .Files.Get (printf "files/crd/%s.yaml" $.plural) -}}
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: {{ $.plural }}.pushpull.dev
  labels:
    {{- include "pushpull.labels" . | nindent 4 }}
  {{- if .Values.crds.keep }}
  annotations:
    helm.sh/resource-policy: keep
  {{- end }}
{{ regexReplaceAll "(?s)^.*?\nspec:\n" $crd "spec:\n" }}
{{- end }}
{{- end }}
