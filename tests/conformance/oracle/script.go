package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"sync"
	"testing"
	"time"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/scheduler"
	internalqueue "k8s.io/kubernetes/pkg/scheduler/backend/queue"

	"unsafe"
)

// The queue flushes its back-off from a goroutine; scripts do it when their clock says so.
//
//go:linkname flushBackoffQCompleted k8s.io/kubernetes/pkg/scheduler/backend/queue.(*PriorityQueue).flushBackoffQCompleted
func flushBackoffQCompleted(queue *internalqueue.PriorityQueue, logger klog.Logger)

//go:linkname lenBackoff k8s.io/kubernetes/pkg/scheduler/backend/queue.(*backoffQueue).lenBackoff
func lenBackoff(backoff unsafe.Pointer) int

// stepTime is how long a step takes.
const stepTime = 10 * time.Millisecond

// start is when scripts begin: most objects of recorded ones are a little older.
var start = time.Unix(1_700_000_000, 0)

type step struct {
	Add      json.RawMessage `json:"add"`
	Patch    *reference      `json:"patch"`
	Delete   *reference      `json:"delete"`
	Advance  float64         `json:"advance"`
	Schedule int             `json:"schedule"`

	Extenders map[string]behaviour `json:"extenders"`
}

type reference struct {
	Kind      string          `json:"kind"`
	Namespace string          `json:"namespace"`
	Name      string          `json:"name"`
	Patch     json.RawMessage `json:"patch"`
}

// A player plays a script on a whole scheduler.
type player struct {
	sync.Mutex // guards world, version, gone and bound
	world      *world
	scheduler  *scheduler.Scheduler
	extenders  *fakeExtenders
	clock      scriptClock
	now        time.Time
	observed   []string
	version    int
	gone       []string
	bound      map[string]string
}

func play(t *testing.T, q question) (trace []moment, err error) {
	inScriptTime(t, func(clock scriptClock) { trace, err = playWith(clock, q) })
	return trace, err
}

func playWith(clock scriptClock, q question) (trace []moment, err error) {
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
	p := &player{world: newWorld(client), clock: clock, now: start, observed: q.Observe}
	p.extenders = &fakeExtenders{behaviours: q.Extenders, bind: p.bind}
	p.world.soon = clock.soon
	client.PrependReactor("*", "*", p.write)
	p.scheduler, err = newScheduler(ctx, client, p.world.factory, cfg, clock.options()...)
	if err != nil {
		return nil, configError{err}
	}
	defer p.scheduler.SchedulingQueue.Close()
	p.extenders.answerFor(p.scheduler, cfg.Extenders)
	for _, data := range q.Objects {
		if err := p.addObject(data); err != nil {
			return nil, err
		}
	}
	p.world.deliver()
	for _, step := range q.Steps {
		found, err := p.play(ctx, step)
		if err != nil {
			return nil, err
		}
		trace = append(trace, found)
	}
	return trace, nil
}

func (p *player) play(ctx context.Context, s step) (moment, error) {
	p.gone, p.bound = nil, map[string]string{}
	p.advance(stepTime)
	var popped [][2]any
	var err error
	switch {
	case s.Add != nil:
		err = p.addObject(s.Add)
	case s.Patch != nil:
		err = p.patch(s.Patch)
	case s.Delete != nil:
		err = p.delete(s.Delete.Kind, s.Delete.Namespace, s.Delete.Name)
	case s.Extenders != nil:
		maps.Copy(p.extenders.behaviours, s.Extenders)
	case s.Schedule > 0:
		popped = p.schedule(ctx, s.Schedule)
	default:
		p.advance(time.Duration(s.Advance * float64(time.Second)))
	}
	p.clock.settle(p, &entity{})
	return p.look(popped), err
}

// advance stops at every whole second, which is when back-off is flushed.
func (p *player) advance(by time.Duration) {
	end := p.now.Add(by)
	for next := p.now.Truncate(time.Second).Add(time.Second); !next.After(end); next = next.Add(time.Second) {
		p.clock.sleepUntil(next)
		p.clock.settle(p, &entity{})
		flushBackoffQCompleted(p.scheduler.SchedulingQueue.(*internalqueue.PriorityQueue), klog.Background())
	}
	p.clock.sleepUntil(end)
	p.clock.settle(p, &entity{})
	p.now = end
}

func (p *player) schedule(ctx context.Context, times int) (popped [][2]any) {
	for turn := range times {
		// Before the clock moves, as in the recorded scripts: no time passes once nothing can be popped.
		if !p.canPop() {
			break
		}
		if turn > 0 {
			p.advance(stepTime)
		}
		var entity *entity
		watchPops(p.scheduler, &entity)
		p.scheduler.ScheduleOne(ctx)
		if entity == nil {
			break
		}
		p.clock.settle(p, entity)
		popped = append(popped, p.decided(entity))
	}
	return popped
}

// canPop returns whether there is an entity to pop; a pop would wait for one. Those that back off from
// an error are not popped before their time.
func (p *player) canPop() bool {
	queue := p.scheduler.SchedulingQueue
	ready := len(queue.PodsInActiveQ())
	if utilfeature.DefaultFeatureGate.Enabled(features.SchedulerPopFromBackoffQ) {
		ready += lenBackoff(reflect.ValueOf(queue).Elem().FieldByName("backoffQ").Elem().UnsafePointer())
	}
	return ready > 0
}
