// The reconcilers of Kubeflow's training operator, without its webhooks: the operator's own program
// serves those on all interfaces, with certificates in a fixed folder.
package main

import (
	"flag"
	"log"

	kubeflow "github.com/kubeflow/training-operator/pkg/apis/kubeflow.org/v1"
	"github.com/kubeflow/training-operator/pkg/config"
	controllers "github.com/kubeflow/training-operator/pkg/controller.v1"
	"github.com/kubeflow/training-operator/pkg/controller.v1/common"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metrics "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	schedulerplugins "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"
	volcano "volcano.sh/apis/pkg/apis/scheduling/v1beta1"
	volcanoclient "volcano.sh/apis/pkg/client/clientset/versioned"
)

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	gangScheduler := flag.String("gang-scheduler-name", "", "as of the operator")
	probes := flag.String("health-probe-bind-address", "", "as of the operator")
	flag.Parse()
	ctrl.SetLogger(zap.New())
	config.Config.PyTorchInitContainerImage = config.PyTorchInitContainerImageDefault
	config.Config.PyTorchInitContainerMaxTries = config.PyTorchInitContainerMaxTriesDefault

	scheme := clientgoscheme.Scheme
	must(kubeflow.AddToScheme(scheme))
	must(volcano.AddToScheme(scheme))
	must(schedulerplugins.AddToScheme(scheme))
	manager, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{
		Scheme:                 scheme,
		Metrics:                metrics.Options{BindAddress: "0"},
		HealthProbeBindAddress: *probes,
	})
	must(err)
	must(manager.AddReadyzCheck("readyz", healthz.Ping))
	setup := common.GenNonGangSchedulerSetupFunc()
	switch *gangScheduler {
	case "":
	case string(common.GangSchedulerVolcano):
		setup = common.GenVolcanoSetupFunc(volcanoclient.NewForConfigOrDie(manager.GetConfig()))
	default:
		setup = common.GenSchedulerPluginsSetupFunc(manager.GetClient(), *gangScheduler)
	}
	must(controllers.SupportedSchemeReconciler[kubeflow.PyTorchJobKind](manager, setup, 1))
	must(manager.Start(ctrl.SetupSignalHandler()))
}
