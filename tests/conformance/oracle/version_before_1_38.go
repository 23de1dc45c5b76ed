//go:build kubernetes_1_36 || kubernetes_1_37

package main

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	_ "unsafe" // for linkname
)

//go:linkname findNodesThatPassExtenders k8s.io/kubernetes/pkg/scheduler.findNodesThatPassExtenders
func findNodesThatPassExtenders(ctx context.Context, extenders []fwk.Extender, pod *v1.Pod, feasible []fwk.NodeInfo, statuses *framework.NodeToStatus) ([]fwk.NodeInfo, error)

//go:linkname prioritizeNodes k8s.io/kubernetes/pkg/scheduler.prioritizeNodes
func prioritizeNodes(ctx context.Context, extenders []fwk.Extender, profile framework.Framework, state fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo) ([]fwk.NodePluginScores, error)

func (c *cluster) passExtenders(ctx context.Context, feasible []fwk.NodeInfo, statuses *framework.NodeToStatus) ([]fwk.NodeInfo, error) {
	return findNodesThatPassExtenders(ctx, c.scheduler.Extenders, c.pod, feasible, statuses)
}

func (c *cluster) prioritize(ctx context.Context, state fwk.CycleState, nodes []fwk.NodeInfo) ([]fwk.NodePluginScores, error) {
	return prioritizeNodes(ctx, c.scheduler.Extenders, c.profile, state, c.pod, nodes)
}

// withoutExtenders has a scheduler call none of its extenders.
func withoutExtenders(s *scheduler.Scheduler) { s.Extenders = nil }

// watched returns an object as the scheduler's informers have it.
func watched(object runtime.Object) (runtime.Object, error) { return object, nil }

func optionsOfVersion(*config.KubeSchedulerConfiguration) []scheduler.Option { return nil }
