// The controllers of Karpenter with its provider of kwok's nodes. Karpenter's own program serves
// metrics and probes on all interfaces.
package main

import (
	"context"
	"log"

	coordination "k8s.io/api/coordination/v1"
	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metrics "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	kwok "sigs.k8s.io/karpenter/kwok/cloudprovider"
	karpenter "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/controllers"
	"sigs.k8s.io/karpenter/pkg/controllers/nodeoverlay"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/injection"
	"sigs.k8s.io/karpenter/pkg/operator/options"
)

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func withOptions() context.Context {
	return injection.WithOptionsOrDie(context.Background(), options.Injectables...)
}

// index lets the cache list objects by a field, as pkg/operator does in a function of its own.
func index[T client.Object](manager ctrl.Manager, object T, field string, value func(T) string) {
	values := func(object client.Object) []string { return []string{value(object.(T))} }
	must(manager.GetFieldIndexer().IndexField(context.Background(), object, field, values))
}

func addIndexes(manager ctrl.Manager) {
	index(manager, &core.Pod{}, "spec.nodeName", func(pod *core.Pod) string { return pod.Spec.NodeName })
	index(manager, &core.Node{}, "spec.providerID", func(node *core.Node) string { return node.Spec.ProviderID })
	index(manager, &storage.VolumeAttachment{}, "spec.nodeName", func(attachment *storage.VolumeAttachment) string {
		return attachment.Spec.NodeName
	})
	index(manager, &karpenter.NodeClaim{}, "status.providerID", func(claim *karpenter.NodeClaim) string {
		return claim.Status.ProviderID
	})
	parts := map[string]func(*karpenter.NodeClassReference) string{
		"group": func(class *karpenter.NodeClassReference) string { return class.Group },
		"kind":  func(class *karpenter.NodeClassReference) string { return class.Kind },
		"name":  func(class *karpenter.NodeClassReference) string { return class.Name },
	}
	for name, part := range parts {
		index(manager, &karpenter.NodeClaim{}, "spec.nodeClassRef."+name, func(claim *karpenter.NodeClaim) string {
			return part(claim.Spec.NodeClassRef)
		})
		index(manager, &karpenter.NodePool{}, "spec.template.spec.nodeClassRef."+name, func(pool *karpenter.NodePool) string {
			return part(pool.Spec.Template.Spec.NodeClassRef)
		})
	}
}

func main() {
	ctx := withOptions()
	ctrl.SetLogger(zap.New())
	manager, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{
		Metrics:     metrics.Options{BindAddress: "0"},
		BaseContext: withOptions,
		Cache: cache.Options{ByObject: map[client.Object]cache.ByObject{
			&coordination.Lease{}: {Field: fields.SelectorFromSet(fields.Set{"metadata.namespace": "kube-node-lease"})},
		}},
	})
	must(err)
	addIndexes(manager)
	instanceTypes, err := kwok.ConstructInstanceTypes(ctx)
	must(err)
	client, now := manager.GetClient(), clock.RealClock{}
	provider := kwok.NewCloudProvider(ctx, client, instanceTypes)
	cluster := state.NewCluster(now, client, provider)
	recorder := events.NewRecorder(manager.GetEventRecorderFor("karpenter"))
	for _, controller := range controllers.NewControllers(ctx, manager, now, client, recorder, provider, provider,
		cluster, nodeoverlay.NewInstanceTypeStore()) {
		must(controller.Register(ctx, manager))
	}
	must(manager.Start(ctrl.SetupSignalHandler()))
}
