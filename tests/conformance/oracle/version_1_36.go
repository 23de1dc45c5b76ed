//go:build kubernetes_1_36

package main

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler"
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
func watchPops(s *scheduler.Scheduler, popped func(*v1.Pod)) {
	s.NextPod = func(logger klog.Logger) (*framework.QueuedPodInfo, error) {
		info, err := s.SchedulingQueue.Pop(logger)
		if info != nil {
			popped(info.Pod)
		}
		return info, err
	}
}
