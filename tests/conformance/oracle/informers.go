package main

import (
	"fmt"
	"reflect"
	"slices"
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

// A world is all objects, with informers that call their handlers before a change returns, so that
// nothing has to wait.
type world struct {
	factory   informers.SharedInformerFactory
	informers map[reflect.Type]*informer
}

func newWorld(client kubernetes.Interface) *world {
	w := &world{informers.NewSharedInformerFactory(client, 0), map[reflect.Type]*informer{}}
	for _, kind := range slices.Concat(kinds, kindsOfVersion) {
		w.informers[reflect.TypeOf(kind)] = &informer{indexer: cache.NewIndexer(
			cache.MetaNamespaceKeyFunc,
			cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc},
		)}
		w.factory.InformerFor(kind, func(kubernetes.Interface, time.Duration) cache.SharedIndexInformer {
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
	return informer.put(object)
}

func (w *world) remove(object runtime.Object) error {
	return w.informers[reflect.TypeOf(object)].remove(object)
}

// An informer of client-go's kind, without a reflector and goroutines.
type informer struct {
	cache.SharedIndexInformer // whatever nobody asks for
	indexer                   cache.Indexer
	handlers                  []cache.ResourceEventHandler
}

func (i *informer) put(object runtime.Object) error {
	old, known, err := i.indexer.Get(object)
	if err != nil {
		return err
	}
	if err := i.indexer.Update(object); err != nil {
		return err
	}
	for _, handler := range i.handlers {
		if known {
			handler.OnUpdate(old, object)
		} else {
			handler.OnAdd(object, false)
		}
	}
	return nil
}

func (i *informer) remove(object runtime.Object) error {
	old, known, err := i.indexer.Get(object)
	if err != nil || !known {
		return err
	}
	if err := i.indexer.Delete(object); err != nil {
		return err
	}
	for _, handler := range i.handlers {
		handler.OnDelete(old)
	}
	return nil
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
