//go:build kubernetes_1_36

package main

import (
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler"
	internalqueue "k8s.io/kubernetes/pkg/scheduler/backend/queue"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// kindsOfVersion are the kinds that only this version watches.
var kindsOfVersion []runtime.Object

// drop removes the first pod from the queue.
func drop(s *scheduler.Scheduler, logger klog.Logger) error {
	_, err := s.NextPod(logger)
	return err
}

// watchPops lets the next cycle take its pod from the queue, and tells which it is.
func watchPops(s *scheduler.Scheduler, popped **entity) {
	s.NextPod = func(logger klog.Logger) (*framework.QueuedPodInfo, error) {
		info, err := s.SchedulingQueue.Pop(logger)
		if info != nil {
			*popped = &entity{name: info.Pod.Name, pods: []*v1.Pod{info.Pod}}
		}
		return info, err
	}
}

// There are no recorded scripts of this version with pod groups.
func incomplete(internalqueue.SchedulingQueue) []*v1.Pod { return nil }

func (p *player) groupConditions() map[string][]metav1.Condition { return nil }
