{{- /*
The YAML files of the kustomizations (kustomizations/ links to them) are the source of all objects. Templates read them,
change what values.yaml varies, and print them. Each named template takes a list of arguments.

proreus.read: root, path
Return the objects of a file as a JSON list. They name the namespace "proreus" in their metadata, in subjects, in arguments,
in account names and in DNS names; it becomes the release's.
*/ -}}
{{- define "proreus.read" -}}
{{- $root := index . 0 -}}
{{- $text := $root.Files.Get (print "kustomizations/" (index . 1)) | required (print "the chart lacks " (index . 1)) -}}
{{- $here := "(amespace: |-namespace=|serviceaccount:|proreus\\.)proreus\\b" -}}
{{- $objects := list -}}
{{- range regexSplit "(?m)^---$" (regexReplaceAll $here $text (print "${1}" $root.Release.Namespace)) -1 -}}
{{- with fromYaml . -}}{{- $objects = append $objects . -}}{{- end -}}
{{- end -}}
{{- toJson $objects -}}
{{- end -}}

{{- /* proreus.print: component, objects. Print objects with the labels of a component, as the kustomizations do. */ -}}
{{- define "proreus.print" -}}
{{- $component := index . 0 -}}
{{- range index . 1 }}
{{- $labels := dict "app.kubernetes.io/name" "proreus" "app.kubernetes.io/component" $component }}
{{- $_ := set .metadata "labels" (merge $labels (.metadata.labels | default dict)) }}
---
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- /* proreus.file: root, component, path. Print the objects of a file as they are. */ -}}
{{- define "proreus.file" -}}
{{- include "proreus.print" (list (index . 1) (include "proreus.read" (list (index . 0) (index . 2)) | fromJsonArray)) }}
{{- end -}}

{{- /* proreus.network-policy: root, component, path. Print a NetworkPolicy that admits the namespace of Prometheus. */ -}}
{{- define "proreus.network-policy" -}}
{{- $root := index . 0 -}}
{{- if $root.Values.networkPolicy.enabled }}
{{- $policy := include "proreus.read" (list $root (index . 2)) | fromJsonArray | first }}
{{- $prometheus := (first (first $policy.spec.ingress).from).namespaceSelector.matchLabels }}
{{- $_ := set $prometheus "kubernetes.io/metadata.name" $root.Values.monitoring.namespace }}
{{- include "proreus.print" (list (index . 1) (list $policy)) }}
{{- end }}
{{- end -}}

{{- /* proreus.role: name, account, namespace, component, rules. Print a ClusterRole and its binding, if there are rules. */ -}}
{{- define "proreus.role" -}}
{{- $name := index . 0 -}}
{{- with index . 4 }}
{{- $group := "rbac.authorization.k8s.io" }}
{{- $common := dict "apiVersion" (print $group "/v1") }}
{{- $role := merge (dict "kind" "ClusterRole" "metadata" (dict "name" $name) "rules" .) $common }}
{{- $subject := dict "kind" "ServiceAccount" "name" (index $ 1) "namespace" (index $ 2) }}
{{- $reference := dict "apiGroup" $group "kind" "ClusterRole" "name" $name }}
{{- $binding := dict "kind" "ClusterRoleBinding" "metadata" (dict "name" $name) "roleRef" $reference "subjects" (list $subject) }}
{{- include "proreus.print" (list (index $ 3) (list $role (merge $binding $common))) }}
{{- end }}
{{- end -}}

{{- /* proreus.adapt: root, deployment, values. Set what values.yaml says of the image and of the pods of a Deployment. */ -}}
{{- define "proreus.adapt" -}}
{{- $image := (index . 0).Values.image -}}
{{- $tag := $image.tag | default (index . 0).Chart.AppVersion -}}
{{- $template := (index . 1).spec.template -}}
{{- $values := index . 2 -}}
{{- $container := first $template.spec.containers -}}
{{- $_ := set $container "image" (print $image.repository ":" $tag) -}}
{{- $_ := set $container "imagePullPolicy" $image.pullPolicy -}}
{{- $_ := set $container "args" (concat $container.args $values.extraArgs) -}}
{{- with $values.resources -}}{{- $_ := set $container "resources" . -}}{{- end -}}
{{- with $image.pullSecrets -}}{{- $_ := set $template.spec "imagePullSecrets" . -}}{{- end -}}
{{- range $field := list "nodeSelector" "tolerations" "affinity" "priorityClassName" -}}
{{- with get $values $field -}}{{- $_ := set $template.spec $field . -}}{{- end -}}
{{- end -}}
{{- with $values.podAnnotations -}}
{{- $_ := set $template.metadata "annotations" (merge (dict) . ($template.metadata.annotations | default dict)) -}}
{{- end -}}
{{- end -}}

{{- /* proreus.mount: deployment, name, path, source. Mount a volume into the container of a Deployment. */ -}}
{{- define "proreus.mount" -}}
{{- $spec := (index . 0).spec.template.spec -}}
{{- $container := first $spec.containers -}}
{{- $mount := dict "name" (index . 1) "mountPath" (index . 2) "readOnly" true -}}
{{- $_ := set $container "volumeMounts" (append $container.volumeMounts $mount) -}}
{{- $_ := set $spec "volumes" (append $spec.volumes (merge (dict "name" (index . 1)) (index . 3))) -}}
{{- end -}}
