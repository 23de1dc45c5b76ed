{{- /* proreus.configuration: the KubeSchedulerConfiguration, from a kustomization's and values.yaml. */ -}}
{{- define "proreus.configuration" -}}
{{- $path := ternary "only-scheduler/scheduler.yaml" "second-scheduler/scheduler.yaml" .Values.onlyScheduler -}}
{{- $configuration := include "proreus.read" (list . $path) | fromJsonArray | first -}}
{{- $configuration = mergeOverwrite $configuration (deepCopy .Values.configuration) -}}
{{- with .Values.profiles -}}{{- $_ := set $configuration "profiles" . -}}{{- end -}}
{{- toYaml $configuration -}}
{{- end -}}

{{- /* proreus.config-map: root, name. A ConfigMap with the configuration. */ -}}
{{- define "proreus.config-map" -}}
{{- $metadata := dict "name" (index . 1) "namespace" (index . 0).Release.Namespace -}}
{{- $data := dict "scheduler.yaml" (include "proreus.configuration" (index . 0)) -}}
{{- toYaml (dict "apiVersion" "v1" "kind" "ConfigMap" "metadata" $metadata "data" $data) -}}
{{- end -}}

{{- /* proreus.plugins: the name of the ConfigMap with plugins; empty for none. */ -}}
{{- define "proreus.plugins" -}}
{{- .Values.plugins.configMap | default (empty .Values.plugins.files | ternary "" "proreus-plugins") -}}
{{- end -}}

{{- /* proreus.checksum: of the configuration and the plugins, so that a change rolls the pods out. */ -}}
{{- define "proreus.checksum" -}}
{{- print (include "proreus.configuration" .) (toJson .Values.plugins.files) | sha256sum -}}
{{- end -}}

{{- /* proreus.add-ons: the entries of add-ons.yaml for the add-ons that a profile enables, as a JSON list. */ -}}
{{- define "proreus.add-ons" -}}
{{- $names := list -}}
{{- range .Values.profiles -}}
{{- range $point, $set := .plugins -}}
{{- range ($set | default dict).enabled -}}{{- $names = append $names .name -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- $known := .Files.Get "add-ons.yaml" | fromYaml -}}
{{- $found := list -}}
{{- range uniq $names -}}{{- with get $known . -}}{{- $found = append $found . -}}{{- end -}}{{- end -}}
{{- toJson $found -}}
{{- end -}}
