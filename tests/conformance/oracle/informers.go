package main

import (
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// kinds are the resources that a question may contain, in all versions.
var kinds = []runtime.Object{
	&v1.Namespace{}, &v1.Node{}, &v1.PersistentVolume{}, &v1.PersistentVolumeClaim{}, &v1.Pod{},
	&v1.ReplicationController{}, &v1.Service{}, &appsv1.ReplicaSet{}, &appsv1.StatefulSet{},
	&policyv1.PodDisruptionBudget{}, &resourcev1.DeviceClass{}, &resourcev1.ResourceClaim{},
	&resourcev1.ResourceSlice{}, &storagev1.CSIDriver{}, &storagev1.CSINode{},
	&storagev1.CSIStorageCapacity{}, &storagev1.StorageClass{}, &storagev1.VolumeAttachment{},
}

// A world is all objects, as the API has them, with informers that call their handlers before a change
// returns. That of ResourceClaims hears of updates later, as all watches do: when the scheduler assumes
// a claim that it has changed, it tells apart from it what its informer has. It hears of creations at
// once: kube-scheduler looks for a claim that it has created itself once a second.
type world struct {
	factory   informers.SharedInformerFactory
	informers map[reflect.Type]*informer
	soon      func(func()) // calls a function when all are at rest; nil: the owner delivers
	sync.Mutex
	undelivered []func()
}

func newWorld(client kubernetes.Interface) *world {
	w := &world{factory: informers.NewSharedInformerFactory(client, 0), informers: map[reflect.Type]*informer{}}
	for _, kind := range slices.Concat(kinds, kindsOfVersion) {
		w.informers[reflect.TypeOf(kind)] = &informer{
			stored: cache.NewStore(cache.MetaNamespaceKeyFunc),
			indexer: cache.NewIndexer(
				cache.MetaNamespaceKeyFunc,
				cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc},
			),
		}
		seen, err := watched(kind)
		if err != nil {
			panic(err)
		}
		w.factory.InformerFor(seen, func(kubernetes.Interface, time.Duration) cache.SharedIndexInformer {
			return w.informers[reflect.TypeOf(kind)]
		})
	}
	return w
}

func (w *world) of(kind string) *informer {
	for known, informer := range w.informers {
		if known.Elem().Name() == kind {
			return informer
		}
	}
	panic("no question is about " + kind)
}

// kindOf returns the kind of objects with this plural.
func (w *world) kindOf(resource string) string {
	for known := range w.informers {
		kind := known.Elem().Name()
		if plural, _ := meta.UnsafeGuessKindToResource(schema.GroupVersionKind{Kind: kind}); plural.Resource == resource {
			return kind
		}
	}
	panic("no question is about " + resource)
}

// put creates or replaces an object.
func (w *world) put(object runtime.Object) error {
	informer, ok := w.informers[reflect.TypeOf(object)]
	if !ok {
		return fmt.Errorf("no question is about %T", object)
	}
	if err := informer.stored.Update(object); err != nil {
		return err
	}
	seen, err := watched(object)
	if err == nil {
		w.tell(seen, informer.put)
	}
	return err
}

func (w *world) remove(object runtime.Object) error {
	informer := w.informers[reflect.TypeOf(object)]
	if err := informer.stored.Delete(object); err != nil {
		return err
	}
	w.tell(object, informer.remove)
	return nil
}

// tell lets the informer of an object hear of its change, or notes that it has to.
func (w *world) tell(object runtime.Object, hear func(runtime.Object)) {
	if _, ok := object.(*resourcev1.ResourceClaim); !ok || !w.knows(object) {
		hear(object)
		return
	}
	w.Lock()
	defer w.Unlock()
	w.undelivered = append(w.undelivered, func() { hear(object) })
	if w.soon != nil {
		w.soon(func() { w.deliver() })
	}
}

// knows returns whether the informer of an object has it already, in whichever version.
func (w *world) knows(object runtime.Object) bool {
	_, known, _ := w.informers[reflect.TypeOf(object)].indexer.Get(object)
	return known
}

// deliver lets the informer of claims hear of the changes up to now; it returns whether there were any.
func (w *world) deliver() bool {
	w.Lock()
	events := w.undelivered
	w.undelivered = nil
	w.Unlock()
	for _, event := range events {
		event()
	}
	return len(events) > 0
}

// An informer of client-go's kind, without a reflector and goroutines.
type informer struct {
	cache.SharedIndexInformer             // whatever nobody asks for
	stored                    cache.Store // what the API has
	indexer                   cache.Indexer
	handlers                  []cache.ResourceEventHandler
}

func (i *informer) put(object runtime.Object) {
	old, known, _ := i.indexer.Get(object)
	_ = i.indexer.Update(object) // fails for objects without a name only
	for _, handler := range i.handlers {
		if known {
			handler.OnUpdate(old, object)
		} else {
			handler.OnAdd(object, false)
		}
	}
}

func (i *informer) remove(object runtime.Object) {
	old, known, _ := i.indexer.Get(object)
	if !known {
		return
	}
	_ = i.indexer.Delete(object)
	for _, handler := range i.handlers {
		handler.OnDelete(old)
	}
}

func (i *informer) AddEventHandler(handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	i.handlers = append(i.handlers, handler)
	for _, object := range i.indexer.List() {
		handler.OnAdd(object, true)
	}
	return synced{}, nil
}

func (i *informer) AddEventHandlerWithOptions(handler cache.ResourceEventHandler, _ cache.HandlerOptions) (cache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandler(handler)
}

func (i *informer) AddIndexers(indexers cache.Indexers) error { return i.indexer.AddIndexers(indexers) }
func (i *informer) GetIndexer() cache.Indexer                 { return i.indexer }
func (i *informer) GetStore() cache.Store                     { return i.indexer }
func (i *informer) HasSynced() bool                           { return true }
func (i *informer) HasSyncedChecker() cache.DoneChecker       { return synced{} }

// synced is a registration whose handler has got all objects.
type synced struct{}

func (synced) HasSynced() bool                     { return true }
func (synced) HasSyncedChecker() cache.DoneChecker { return synced{} }
func (synced) Name() string                        { return "in memory" }
func (synced) Done() <-chan struct{} {
	done := make(chan struct{})
	close(done)
	return done
}
