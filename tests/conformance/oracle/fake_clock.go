//go:build kubernetes_1_36

package main

import (
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/scheduler"
	testingclock "k8s.io/utils/clock/testing"
)

// patience is how long (in real time) a binding may take before it is no longer waited for: some wait
// for volumes that are never provisioned.
const patience = 150 * time.Millisecond

// A scriptClock is the time of a script. Only the queue has it: a pod without a start time counts in
// 1.36 as started when it is compared, so that real time has to pass between two comparisons.
type scriptClock struct{ *testingclock.FakeClock }

func inScriptTime(_ *testing.T, f func(scriptClock)) {
	f(scriptClock{testingclock.NewFakeClock(start)})
}

func (c scriptClock) options() []scheduler.Option {
	return []scheduler.Option{scheduler.WithClock(c.FakeClock)}
}

func (scriptClock) soon(func()) {}

func (c scriptClock) sleepUntil(end time.Time) { c.SetTime(end) }

// settle waits until the pod that was popped is bound, back in the queue or gone.
func (c scriptClock) settle(p *player, popped *entity) {
	defer p.world.deliver()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(100 * time.Microsecond) {
		p.world.deliver()
		if !slices.ContainsFunc(popped.pods, p.inFlight) {
			time.Sleep(time.Millisecond)
			return
		}
	}
}

func (p *player) inFlight(pod *v1.Pod) bool {
	live, ok := p.get("Pod", pod.Namespace, pod.Name)
	if !ok || live.(*v1.Pod).Spec.NodeName != "" {
		return false
	}
	queue := p.scheduler.SchedulingQueue
	queued := slices.Concat(queue.PodsInActiveQ(), queue.PodsInBackoffQ(), queue.UnschedulablePods())
	return p.nodeOf(pod) != "" || !slices.Contains(names(queued), pod.Name)
}
