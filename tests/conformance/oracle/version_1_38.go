//go:build !kubernetes_1_36 && !kubernetes_1_37

// Of 1.38, and of each version after it until one of them does not build with this.

package main

import (
	"context"
	"reflect"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	draapi "k8s.io/dynamic-resource-allocation/api"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	internalqueue "k8s.io/kubernetes/pkg/scheduler/backend/queue"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	_ "unsafe" // for linkname
)

//go:linkname findNodesThatPassExtenders k8s.io/kubernetes/pkg/scheduler.findNodesThatPassExtenders
func findNodesThatPassExtenders(ctx context.Context, extenders []fwk.Extender, pod *v1.Pod, feasible []framework.NodeWithRank, statuses *framework.NodeToStatus) ([]framework.NodeWithRank, error)

//go:linkname prioritizeNodes k8s.io/kubernetes/pkg/scheduler.prioritizeNodes
func prioritizeNodes(ctx context.Context, profile framework.Framework, state fwk.CycleState, pod *v1.Pod, nodes []framework.NodeWithRank) ([]fwk.NodePluginScores, error)

// kindsOfVersion are the kinds that only this version watches.
var kindsOfVersion = []runtime.Object{
	&resourcev1.DeviceTaintRule{}, &schedulingv1beta1.PodGroup{}, &schedulingv1beta1.CompositePodGroup{},
}

// watched returns an object as the scheduler's informers have it.
func watched(object runtime.Object) (runtime.Object, error) {
	slice, ok := object.(*resourcev1.ResourceSlice)
	if !ok {
		return object, nil
	}
	seen := &draapi.ResourceSlice{}
	return seen, draapi.Convert_v1_ResourceSlice_To_api_ResourceSlice(slice, seen, nil)
}

func optionsOfVersion(cfg *config.KubeSchedulerConfiguration) []scheduler.Option {
	return []scheduler.Option{scheduler.WithPercentageOfPlacementsToScore(cfg.PercentageOfPlacementsToScore)}
}

// drop removes the first pod from the queue.
func drop(s *scheduler.Scheduler, logger klog.Logger) error {
	_, err := s.NextEntity(logger)
	return err
}

// watchPops lets the next cycle take its entity from the queue, and tells which it is.
func watchPops(s *scheduler.Scheduler, popped **entity) {
	s.NextEntity = func(logger klog.Logger) (framework.QueuedEntityInfo, error) {
		info, err := s.SchedulingQueue.Pop(logger)
		if info == nil {
			return info, err
		}
		_, single := info.(*framework.QueuedPodInfo)
		*popped = &entity{name: info.GetName(), group: !single}
		for pod := range info.ForEachPodInfo() {
			(*popped).pods = append((*popped).pods, pod.Pod)
		}
		return info, err
	}
}

// incomplete returns the pods whose pod group is not there.
func incomplete(queue internalqueue.SchedulingQueue) []*v1.Pod {
	return queue.IncompletePodGroupPodsPods()
}

func (p *player) groupConditions() map[string][]metav1.Condition {
	found := map[string][]metav1.Condition{}
	for _, object := range p.world.of("PodGroup").stored.List() {
		group := object.(*schedulingv1beta1.PodGroup)
		found[group.Name] = group.Status.Conditions
	}
	for _, object := range p.world.of("CompositePodGroup").stored.List() {
		group := object.(*schedulingv1beta1.CompositePodGroup)
		found[group.Name] = group.Status.Conditions
	}
	return found
}

func (c *cluster) passExtenders(ctx context.Context, feasible []fwk.NodeInfo, statuses *framework.NodeToStatus) ([]fwk.NodeInfo, error) {
	passed, err := findNodesThatPassExtenders(ctx, c.profile.Extenders(), c.pod, ranked(feasible), statuses)
	nodes := make([]fwk.NodeInfo, len(passed))
	for i, node := range passed {
		nodes[i] = node.NodeInfo
	}
	return nodes, err
}

func (c *cluster) prioritize(ctx context.Context, state fwk.CycleState, nodes []fwk.NodeInfo) ([]fwk.NodePluginScores, error) {
	return prioritizeNodes(ctx, c.profile, state, c.pod, ranked(nodes))
}

// ranked gives all nodes the same rank: only cycles of pod groups tell them apart.
func ranked(nodes []fwk.NodeInfo) []framework.NodeWithRank {
	equal := make([]framework.NodeWithRank, len(nodes))
	for i, node := range nodes {
		equal[i].NodeInfo = node
	}
	return equal
}

// withoutExtenders has a scheduler call none of its extenders.
func withoutExtenders(s *scheduler.Scheduler) {
	for _, profile := range s.Profiles {
		field := reflect.ValueOf(profile).Elem().FieldByName("extenders")
		*(*[]fwk.Extender)(field.Addr().UnsafePointer()) = nil
	}
}
