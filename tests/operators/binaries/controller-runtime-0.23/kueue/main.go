// The queues, the controllers and the webhooks of Kueue, for Jobs and plain pods, without
// MultiKueue, topologies and its API of pending workloads: Kueue's own program serves that API on
// all interfaces, and needs certificates in a fixed folder.
package main

import (
	"flag"
	"log"
	"net/http"

	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/discovery"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	configuration "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueuealpha "sigs.k8s.io/kueue/apis/kueue/v1alpha1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	queuecache "sigs.k8s.io/kueue/pkg/cache/queue"
	schedulercache "sigs.k8s.io/kueue/pkg/cache/scheduler"
	"sigs.k8s.io/kueue/pkg/config"
	"sigs.k8s.io/kueue/pkg/constants"
	"sigs.k8s.io/kueue/pkg/controller/core"
	"sigs.k8s.io/kueue/pkg/controller/core/indexer"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"
	_ "sigs.k8s.io/kueue/pkg/controller/jobs/job"
	_ "sigs.k8s.io/kueue/pkg/controller/jobs/pod"
	"sigs.k8s.io/kueue/pkg/features"
	"sigs.k8s.io/kueue/pkg/scheduler"
	"sigs.k8s.io/kueue/pkg/scheduler/preemption/expectations"
	"sigs.k8s.io/kueue/pkg/util/kubeversion"
	"sigs.k8s.io/kueue/pkg/webhooks"
)

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, kueue.AddToScheme, kueuealpha.AddToScheme, configuration.AddToScheme,
	} {
		must(add(scheme))
	}
	return scheme
}

func main() {
	file := flag.String("config", "", "as of Kueue")
	flag.Parse()
	ctrl.SetLogger(zap.New())
	options, settings, err := config.Load(newScheme(), *file)
	must(err)
	must(utilfeature.DefaultMutableFeatureGate.SetFromMap(map[string]bool{
		string(features.MultiKueue):              false,
		string(features.TopologyAwareScheduling): false,
	}))
	config.AddWebhookSettingsTo(&options, &settings)

	ctx := ctrl.SetupSignalHandler()
	manager, err := ctrl.NewManager(ctrl.GetConfigOrDie(), options)
	must(err)
	must(manager.AddReadyzCheck("readyz", func(request *http.Request) error {
		return manager.GetWebhookServer().StartedChecker()(request)
	}))
	version := kubeversion.NewServerVersionFetcher(discovery.NewDiscoveryClientForConfigOrDie(manager.GetConfig()))
	must(version.FetchServerVersion())

	client, expected := manager.GetClient(), expectations.New()
	cache := schedulercache.New(client)
	requeuer := queuecache.NewRequeuer()
	must(manager.Add(requeuer))
	queues := queuecache.NewManager(client, cache, requeuer, queuecache.WithPreemptionExpectations(expected))

	must(indexer.Setup(ctx, manager.GetFieldIndexer()))
	enabled := jobframework.WithEnabledFrameworks(settings.Integrations.Frameworks)
	must(jobframework.SetupIndexes(ctx, manager.GetFieldIndexer(), enabled))
	if failed, err := core.SetupControllers(manager, queues, cache, &settings, nil, expected, nil); err != nil {
		log.Fatal(failed, err)
	}
	namespaces, err := meta.LabelSelectorAsSelector(settings.ManagedJobsNamespaceSelector)
	must(err)
	must(jobframework.SetupControllers(ctx, manager, ctrl.Log, enabled,
		jobframework.WithKubeServerVersion(version),
		jobframework.WithManagerName(constants.KueueName),
		jobframework.WithManagedJobsNamespaceSelector(namespaces),
		jobframework.WithCache(cache),
		jobframework.WithQueues(queues)))
	if failed, err := webhooks.Setup(manager, nil); err != nil {
		log.Fatal(failed, err)
	}
	go queues.CleanUpOnContext(ctx)
	go cache.CleanUpOnContext(ctx)
	must(manager.Add(scheduler.New(queues, cache, client, manager.GetEventRecorderFor(constants.AdmissionName),
		scheduler.WithPreemptionExpectations(expected))))
	must(manager.Start(ctx))
}
