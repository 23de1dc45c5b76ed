package main

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/scheduler"
	internalqueue "k8s.io/kubernetes/pkg/scheduler/backend/queue"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	testingclock "k8s.io/utils/clock/testing"

	"unsafe"
)

// The queue flushes its back-off from a goroutine; scripts do it when their clock says so.
//
//go:linkname flushBackoffQCompleted k8s.io/kubernetes/pkg/scheduler/backend/queue.(*PriorityQueue).flushBackoffQCompleted
func flushBackoffQCompleted(queue *internalqueue.PriorityQueue, logger klog.Logger)

//go:linkname lenBackoff k8s.io/kubernetes/pkg/scheduler/backend/queue.(*backoffQueue).lenBackoff
func lenBackoff(backoff unsafe.Pointer) int

// How long a step takes, and how long (in real time) a binding may take before it is no longer
// waited for: some wait for volumes that are never provisioned.
const (
	stepTime        = 10 * time.Millisecond
	bindingPatience = 150 * time.Millisecond
)

type step struct {
	Add      json.RawMessage `json:"add"`
	Patch    *reference      `json:"patch"`
	Delete   *reference      `json:"delete"`
	Advance  float64         `json:"advance"`
	Schedule int             `json:"schedule"`
}

type reference struct {
	Kind      string          `json:"kind"`
	Namespace string          `json:"namespace"`
	Name      string          `json:"name"`
	Patch     json.RawMessage `json:"patch"`
}

type moment struct {
	Popped        [][2]string       `json:"popped,omitempty"`
	Active        []string          `json:"active,omitempty"`
	Backoff       []string          `json:"backoff,omitempty"`
	Unschedulable []string          `json:"unschedulable,omitempty"`
	Nominated     map[string]string `json:"nominated,omitempty"`
	Gone          []string          `json:"gone,omitempty"`
}

// A player plays a script on a whole scheduler.
type player struct {
	sync.Mutex // guards world, chosen and gone
	world      *world
	scheduler  *scheduler.Scheduler
	clock      *testingclock.FakeClock
	version    int
	chosen     map[string]string
	gone       []string
}

func play(q question) (trace []moment, err error) {
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("panic: %v", fault)
		}
	}()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	cfg, err := loadConfig(q.Config)
	if err != nil {
		return nil, configError{err}
	}
	client := fake.NewSimpleClientset()
	p := &player{world: newWorld(client), clock: testingclock.NewFakeClock(time.Unix(1_700_000_000, 0)), chosen: map[string]string{}}
	client.PrependReactor("*", "*", p.write)
	p.scheduler, err = newScheduler(ctx, client, p.world.factory, cfg, scheduler.WithClock(p.clock))
	if err != nil {
		return nil, configError{err}
	}
	p.watchDecisions()
	for _, data := range q.Objects {
		if err := p.addObject(data); err != nil {
			return nil, err
		}
	}
	for _, step := range q.Steps {
		found, err := p.play(ctx, step)
		if err != nil {
			return nil, err
		}
		trace = append(trace, found)
	}
	return trace, nil
}

func (p *player) watchDecisions() {
	decide := p.scheduler.SchedulePod
	p.scheduler.SchedulePod = func(ctx context.Context, fw framework.Framework, state fwk.CycleState, info *framework.QueuedPodInfo) (scheduler.ScheduleResult, error) {
		result, err := decide(ctx, fw, state, info)
		p.Lock()
		defer p.Unlock()
		p.chosen[info.Pod.Name] = result.SuggestedHost
		return result, err
	}
	fail := p.scheduler.FailureHandler
	p.scheduler.FailureHandler = func(ctx context.Context, fw framework.Framework, info *framework.QueuedPodInfo, status *fwk.Status, nominating *fwk.NominatingInfo, start time.Time) {
		p.Lock()
		p.chosen[info.Pod.Name] = ""
		p.Unlock()
		fail(ctx, fw, info, status, nominating, start)
	}
}

func (p *player) play(ctx context.Context, s step) (moment, error) {
	p.advance(stepTime)
	p.gone = nil
	var popped [][2]string
	var err error
	switch {
	case s.Add != nil:
		err = p.addObject(s.Add)
	case s.Patch != nil:
		err = p.patch(s.Patch)
	case s.Delete != nil:
		err = p.delete(s.Delete.Kind, s.Delete.Namespace, s.Delete.Name)
	case s.Schedule > 0:
		popped = p.schedule(ctx, s.Schedule)
	default:
		p.advance(time.Duration(s.Advance * float64(time.Second)))
	}
	return p.look(popped), err
}

// advance stops at every whole second, which is when back-off is flushed.
func (p *player) advance(by time.Duration) {
	end := p.clock.Now().Add(by)
	for next := p.clock.Now().Truncate(time.Second).Add(time.Second); !next.After(end); next = next.Add(time.Second) {
		p.clock.SetTime(next)
		flushBackoffQCompleted(p.scheduler.SchedulingQueue.(*internalqueue.PriorityQueue), klog.Background())
	}
	p.clock.SetTime(end)
}

func (p *player) schedule(ctx context.Context, times int) (popped [][2]string) {
	for turn := range times {
		// Before the clock moves, as in the recorded scripts: no time passes once nothing can be popped.
		if !p.canPop() {
			break
		}
		if turn > 0 {
			p.advance(stepTime)
		}
		var pod *v1.Pod
		watchPops(p.scheduler, func(popped *v1.Pod) { pod = popped })
		p.scheduler.ScheduleOne(ctx)
		if pod == nil {
			break
		}
		p.Lock()
		node := p.chosen[pod.Name]
		p.Unlock()
		popped = append(popped, [2]string{pod.Name, node})
		if node != "" {
			p.awaitBinding(pod)
		}
	}
	return popped
}

// canPop returns whether there is a pod to pop; a pop would wait for one. Those that back off from
// an error are not popped before their time.
func (p *player) canPop() bool {
	queue := p.scheduler.SchedulingQueue
	ready := len(queue.PodsInActiveQ())
	if utilfeature.DefaultFeatureGate.Enabled(features.SchedulerPopFromBackoffQ) {
		ready += lenBackoff(reflect.ValueOf(queue).Elem().FieldByName("backoffQ").Elem().UnsafePointer())
	}
	return ready > 0
}

// awaitBinding waits until the pod is bound, back in the queue or gone.
func (p *player) awaitBinding(pod *v1.Pod) {
	for end := time.Now().Add(bindingPatience); time.Now().Before(end); time.Sleep(100 * time.Microsecond) {
		live, ok := p.get("Pod", pod.Namespace, pod.Name)
		if !ok {
			return
		}
		if assumed, _ := p.scheduler.Cache.IsAssumedPod(pod); assumed {
			continue
		}
		if live.(*v1.Pod).Spec.NodeName != "" || slices.Contains(p.look(nil).all(), pod.Name) {
			time.Sleep(time.Millisecond)
			return
		}
	}
}

func (m moment) all() []string { return slices.Concat(m.Active, m.Backoff, m.Unschedulable) }

func (p *player) look(popped [][2]string) moment {
	queue := p.scheduler.SchedulingQueue
	p.Lock()
	defer p.Unlock()
	seen := moment{
		Popped:        popped,
		Active:        names(queue.PodsInActiveQ()),
		Backoff:       names(queue.PodsInBackoffQ()),
		Unschedulable: names(queue.UnschedulablePods()),
		Nominated:     map[string]string{},
		Gone:          slices.Sorted(slices.Values(p.gone)),
	}
	for _, object := range p.world.of("Pod").indexer.List() {
		if pod := object.(*v1.Pod); pod.Status.NominatedNodeName != "" && pod.Spec.NodeName == "" {
			seen.Nominated[pod.Name] = pod.Status.NominatedNodeName
		}
	}
	return seen
}

func names(pods []*v1.Pod) []string {
	var found []string
	for _, pod := range pods {
		found = append(found, pod.Name)
	}
	slices.Sort(found)
	return found
}

// ---- the API

func (p *player) addObject(data json.RawMessage) error {
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(data, nil, nil)
	if err != nil {
		return err
	}
	return p.put(object)
}

// put creates or replaces an object; finished pods are hidden.
func (p *player) put(object runtime.Object) error {
	accessor, err := meta.Accessor(object)
	if err != nil {
		return err
	}
	p.Lock()
	p.version++
	accessor.SetResourceVersion(fmt.Sprint(p.version))
	p.Unlock()
	if pod, ok := object.(*v1.Pod); ok && (pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed) {
		return p.world.remove(object)
	}
	return p.world.put(object)
}

func (p *player) get(kind, namespace, name string) (runtime.Object, bool) {
	key := name
	if namespace != "" {
		key = namespace + "/" + name
	}
	object, ok, _ := p.world.of(kind).indexer.GetByKey(key)
	if !ok {
		return nil, false
	}
	return object.(runtime.Object), true
}

func (p *player) patch(r *reference) error {
	live, ok := p.get(r.Kind, r.Namespace, r.Name)
	if !ok {
		return nil
	}
	return p.patched(live, func(data []byte) ([]byte, error) { return jsonpatch.MergePatch(data, r.Patch) })
}

func (p *player) patched(live runtime.Object, change func([]byte) ([]byte, error)) error {
	data, err := json.Marshal(live)
	if err == nil {
		data, err = change(data)
	}
	if err != nil {
		return err
	}
	fresh := reflect.New(reflect.TypeOf(live).Elem()).Interface().(runtime.Object)
	if err := json.Unmarshal(data, fresh); err != nil {
		return err
	}
	return p.put(fresh)
}

func (p *player) delete(kind, namespace, name string) error {
	live, ok := p.get(kind, namespace, name)
	if !ok {
		return nil
	}
	return p.world.remove(live)
}

// write applies what the scheduler writes; handlers are called before it returns.
func (p *player) write(action clienttesting.Action) (bool, runtime.Object, error) {
	switch action := action.(type) {
	case clienttesting.CreateActionImpl:
		if binding, ok := action.GetObject().(*v1.Binding); ok {
			return true, binding, p.bind(binding)
		}
		return true, action.GetObject(), nil
	case clienttesting.DeleteActionImpl:
		p.Lock()
		p.gone = append(p.gone, action.GetName())
		p.Unlock()
		return true, nil, p.delete("Pod", action.GetNamespace(), action.GetName())
	case clienttesting.PatchActionImpl:
		live, ok := p.get("Pod", action.GetNamespace(), action.GetName())
		if !ok {
			return true, &v1.Pod{}, nil
		}
		return true, live, p.patched(live, func(data []byte) ([]byte, error) {
			if action.GetPatchType() == types.StrategicMergePatchType {
				return strategicpatch.StrategicMergePatch(data, action.GetPatch(), live)
			}
			return jsonpatch.MergePatch(data, action.GetPatch())
		})
	case clienttesting.UpdateActionImpl:
		return true, action.GetObject(), p.put(action.GetObject().DeepCopyObject())
	}
	return false, nil, nil
}

func (p *player) bind(binding *v1.Binding) error {
	live, ok := p.get("Pod", binding.Namespace, binding.Name)
	if !ok {
		return fmt.Errorf("pod %s not found", binding.Name)
	}
	pod := live.(*v1.Pod).DeepCopy()
	pod.Spec.NodeName = binding.Target.Name
	pod.Status.NominatedNodeName = ""
	return p.put(pod)
}
