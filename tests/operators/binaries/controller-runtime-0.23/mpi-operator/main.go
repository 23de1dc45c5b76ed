// The controller of Kubeflow's MPI operator, without the leader election and the health check around
// it: the operator's own program serves the latter on port 8080 of all interfaces.
package main

import (
	"flag"
	"log"
	"os"

	"github.com/kubeflow/mpi-operator/cmd/mpi-operator/app/options"
	mpijobs "github.com/kubeflow/mpi-operator/pkg/client/clientset/versioned"
	mpijobsscheme "github.com/kubeflow/mpi-operator/pkg/client/clientset/versioned/scheme"
	mpiinformers "github.com/kubeflow/mpi-operator/pkg/client/informers/externalversions"
	controllers "github.com/kubeflow/mpi-operator/pkg/controller"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	schedulerplugins "sigs.k8s.io/scheduler-plugins/pkg/generated/clientset/versioned"
	volcano "volcano.sh/apis/pkg/client/clientset/versioned"
)

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	option := options.NewServerOption()
	option.AddFlags(flag.CommandLine)
	flag.Parse()
	must(mpijobsscheme.AddToScheme(scheme.Scheme))

	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	must(err)
	client := kubernetes.NewForConfigOrDie(config)
	mpiClient := mpijobs.NewForConfigOrDie(config)
	objects := informers.NewSharedInformerFactory(client, 0)
	mpiObjects := mpiinformers.NewSharedInformerFactory(mpiClient, 0)

	ctx := ctrl.SetupSignalHandler()
	controller, err := controllers.NewMPIJobController(
		ctx, client, mpiClient, volcano.NewForConfigOrDie(config), schedulerplugins.NewForConfigOrDie(config),
		objects.Core().V1().ConfigMaps(), objects.Core().V1().Secrets(), objects.Core().V1().Services(),
		objects.Batch().V1().Jobs(), objects.Core().V1().Pods(), objects.Scheduling().V1().PriorityClasses(),
		mpiObjects.Kubeflow().V2beta1().MPIJobs(), option)
	must(err)
	objects.Start(ctx.Done())
	mpiObjects.Start(ctx.Done())
	if controller.PodGroupCtrl != nil {
		controller.PodGroupCtrl.StartInformerFactory(ctx.Done())
	}
	must(controller.Run(option.Threadiness, ctx.Done()))
}
