//go:build kubernetes_1_37

package main

import (
	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1alpha3 "k8s.io/api/scheduling/v1alpha3"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler"
	internalqueue "k8s.io/kubernetes/pkg/scheduler/backend/queue"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// kindsOfVersion are the kinds that only this version watches.
var kindsOfVersion = []runtime.Object{
	&resourcev1.DeviceTaintRule{}, &schedulingv1beta1.PodGroup{}, &schedulingv1alpha3.CompositePodGroup{},
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
		info.ForEachPodInfo(func(pod *framework.QueuedPodInfo) bool {
			(*popped).pods = append((*popped).pods, pod.Pod)
			return true
		})
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
	return found
}
