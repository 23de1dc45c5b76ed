// kube-scheduler as a library. Versions and replacements are those of the control plane's programs:
// go.work joins the two modules.
module proreus.example/conformance/oracle

go 1.26.0

require k8s.io/kubernetes v1.36.2
