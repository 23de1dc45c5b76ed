package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	configscheme "k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/validation"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// A cluster is a kube-scheduler that has seen all objects of a question, with one pending pod.
type cluster struct {
	scheduler *scheduler.Scheduler
	profile   framework.Framework
	snapshot  *internalcache.Snapshot
	pod       *v1.Pod
	writes    *writes
	stop      func()
}

// newCluster returns errors of the configuration as configError.
func newCluster(ctx context.Context, q question) (*cluster, error) {
	cfg, err := loadConfig(q.Config)
	if err != nil {
		return nil, configError{err}
	}
	pod, objects, err := decodeObjects(q)
	if err != nil {
		return nil, err
	}
	client := fake.NewSimpleClientset()
	world := newWorld(client)
	ctx, cancel := context.WithCancel(ctx)
	sched, err := newScheduler(ctx, client, world.factory, cfg)
	if err != nil {
		cancel()
		return nil, configError{err}
	}
	for _, object := range append(objects, pod) {
		if err := world.put(object); err != nil {
			cancel()
			return nil, err
		}
	}
	world.deliver()
	profile, ok := sched.Profiles[pod.Spec.SchedulerName]
	if !ok {
		profile = sched.Profiles[cfg.Profiles[0].SchedulerName]
	}
	c := &cluster{sched, profile, profile.SnapshotSharedLister().(*internalcache.Snapshot), pod, interceptWrites(client), cancel}
	(&fakeExtenders{behaviours: q.Extenders}).answerFor(sched, cfg.Extenders)
	return c, c.prepare(ctx)
}

// prepare takes the snapshot, and removes all pods from the queue: the recorded cases were run by a
// scheduler with an empty queue. Nominated pods count there as kube-scheduler counts pods in flight.
func (c *cluster) prepare(ctx context.Context) error {
	logger := klog.FromContext(ctx)
	for len(c.scheduler.SchedulingQueue.PodsInActiveQ()) > 0 {
		if err := drop(c.scheduler, logger); err != nil {
			return err
		}
	}
	if err := c.scheduler.Cache.UpdateSnapshot(logger, c.snapshot); err != nil {
		return err
	}
	return c.sizeImages()
}

// sizeImages gives images on a node the size that the node itself reports, as the recorded answers
// have it. A running kube-scheduler takes the size that the first node reported, whichever that was.
func (c *cluster) sizeImages() error {
	nodes, err := c.snapshot.NodeInfos().List()
	for _, node := range nodes {
		for _, image := range node.Node().Status.Images {
			for _, name := range image.Names {
				node.GetImageStates()[name].Size = image.SizeBytes
			}
		}
	}
	return err
}

func newScheduler(ctx context.Context, client kubernetes.Interface, factory informers.SharedInformerFactory,
	cfg *config.KubeSchedulerConfiguration, more ...scheduler.Option) (*scheduler.Scheduler, error) {
	more = append(more, optionsOfVersion(cfg)...)
	silent := func(string) events.EventRecorderLogger { return &events.FakeRecorder{} }
	return scheduler.New(ctx, client, factory, nil, silent, append(more,
		scheduler.WithComponentConfigVersion(cfg.TypeMeta.APIVersion),
		scheduler.WithProfiles(cfg.Profiles...),
		scheduler.WithPercentageOfNodesToScore(cfg.PercentageOfNodesToScore),
		scheduler.WithPodMaxBackoffSeconds(cfg.PodMaxBackoffSeconds),
		scheduler.WithPodInitialBackoffSeconds(cfg.PodInitialBackoffSeconds),
		scheduler.WithExtenders(cfg.Extenders...),
		scheduler.WithParallelism(cfg.Parallelism),
	)...)
}

type configError struct{ error }

func loadConfig(data json.RawMessage) (*config.KubeSchedulerConfiguration, error) {
	if len(data) == 0 || string(data) == "null" {
		return latest.Default()
	}
	object, version, err := configscheme.Codecs.UniversalDecoder().Decode(data, nil, nil)
	if err != nil {
		return nil, err
	}
	cfg, ok := object.(*config.KubeSchedulerConfiguration)
	if !ok {
		return nil, fmt.Errorf("%s is no KubeSchedulerConfiguration", version)
	}
	cfg.TypeMeta.APIVersion = version.GroupVersion().String()
	if err := validation.ValidateKubeSchedulerConfiguration(cfg); err != nil {
		return nil, err
	}
	return cfg, nil
}

func decodeObjects(q question) (*v1.Pod, []runtime.Object, error) {
	decoder := scheme.Codecs.UniversalDeserializer()
	objects := make([]runtime.Object, len(q.Objects))
	for i, data := range q.Objects {
		object, _, err := decoder.Decode(data, nil, nil)
		if err != nil {
			return nil, nil, fmt.Errorf("objects[%d]: %w", i, err)
		}
		objects[i] = object
	}
	object, _, err := decoder.Decode(q.Pod, nil, nil)
	if err != nil {
		return nil, nil, fmt.Errorf("pod: %w", err)
	}
	pod, ok := object.(*v1.Pod)
	if !ok {
		return nil, nil, errors.New("pod: not a Pod")
	}
	return pod, objects, nil
}

// writes are dropped, so that the same question can be repeated; deletions are recorded.
type writes struct {
	sync.Mutex
	deleted []string
}

func interceptWrites(client *fake.Clientset) *writes {
	w := &writes{}
	client.PrependReactor("*", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		switch action := action.(type) {
		case clienttesting.DeleteAction:
			w.Lock()
			defer w.Unlock()
			w.deleted = append(w.deleted, action.GetName())
			return true, nil, nil
		case clienttesting.PatchAction:
			return true, &v1.Pod{}, nil
		case clienttesting.UpdateAction: // creations have this form too
			return true, action.GetObject(), nil
		}
		return false, nil, nil
	})
	return w
}

// takeDeleted returns the names of what was deleted since the last call.
func (w *writes) takeDeleted() []string {
	w.Lock()
	defer w.Unlock()
	deleted := w.deleted
	w.deleted = nil
	return deleted
}
