// kube-scheduler as a library. Versions and replacements are those of the control plane's programs:
// kubernetes-*.work joins the two modules, and so this requires the oldest version only.
module proreus.example/conformance/oracle

go 1.26.0

require k8s.io/kubernetes v1.36.2
