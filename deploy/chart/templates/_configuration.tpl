{{- /* proreus.configuration: the KubeSchedulerConfiguration, from a kustomization's and values.yaml. */ -}}
{{- define "proreus.configuration" -}}
{{- $path := ternary "only-scheduler/scheduler.yaml" "second-scheduler/scheduler.yaml" .Values.onlyScheduler -}}
{{- $configuration := include "proreus.read" (list . $path) | fromJsonArray | first -}}
{{- $configuration = mergeOverwrite $configuration (deepCopy .Values.configuration) -}}
{{- with .Values.profiles -}}{{- $_ := set $configuration "profiles" . -}}{{- end -}}
{{- toYaml $configuration -}}
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
