package main

import (
	"encoding/json"
	"fmt"
	"reflect"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"
)

// The API of scripts.

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
	if accessor.GetName() == "" {
		accessor.SetName(fmt.Sprint(accessor.GetGenerateName(), p.version))
	}
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
	object, ok, _ := p.world.of(kind).stored.GetByKey(key)
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
	fresh, err := patched(live, func(data []byte) ([]byte, error) { return jsonpatch.MergePatch(data, r.Patch) })
	if err != nil {
		return err
	}
	return p.put(fresh)
}

// patched returns an object with a change of its JSON.
func patched(live runtime.Object, change func([]byte) ([]byte, error)) (runtime.Object, error) {
	data, err := json.Marshal(live)
	if err == nil {
		data, err = change(data)
	}
	if err != nil {
		return nil, err
	}
	fresh := reflect.New(reflect.TypeOf(live).Elem()).Interface().(runtime.Object)
	return fresh, json.Unmarshal(data, fresh)
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
		return p.stored(action.GetObject().DeepCopyObject())
	case clienttesting.UpdateActionImpl:
		return p.stored(action.GetObject().DeepCopyObject())
	case clienttesting.GetActionImpl:
		live, err := p.find(action, action.GetName())
		if err != nil {
			return true, nil, err
		}
		return true, live.DeepCopyObject(), nil
	case clienttesting.PatchActionImpl:
		live, err := p.find(action, action.GetName())
		if err != nil {
			return true, nil, err
		}
		fresh, err := patched(live, func(data []byte) ([]byte, error) {
			if action.GetPatchType() == types.StrategicMergePatchType {
				return strategicpatch.StrategicMergePatch(data, action.GetPatch(), live)
			}
			return jsonpatch.MergePatch(data, action.GetPatch())
		})
		if err != nil {
			return true, nil, err
		}
		return p.stored(fresh)
	case clienttesting.DeleteActionImpl:
		live, err := p.find(action, action.GetName())
		if err != nil {
			return true, nil, err
		}
		if _, ok := live.(*v1.Pod); ok {
			p.Lock()
			p.gone = append(p.gone, action.GetName())
			p.Unlock()
		}
		return true, nil, p.world.remove(live)
	}
	return false, nil, nil
}

// stored returns a copy of what it stores, which the scheduler may change.
func (p *player) stored(object runtime.Object) (bool, runtime.Object, error) {
	err := p.put(object)
	return true, object.DeepCopyObject(), err
}

// find returns the object that an action is about.
func (p *player) find(action clienttesting.Action, name string) (runtime.Object, error) {
	live, ok := p.get(p.world.kindOf(action.GetResource().Resource), action.GetNamespace(), name)
	if !ok {
		return nil, apierrors.NewNotFound(action.GetResource().GroupResource(), name)
	}
	return live, nil
}

func (p *player) bind(binding *v1.Binding) error {
	live, ok := p.get("Pod", binding.Namespace, binding.Name)
	if !ok {
		return apierrors.NewNotFound(v1.Resource("pods"), binding.Name)
	}
	pod := live.(*v1.Pod).DeepCopy()
	pod.Spec.NodeName = binding.Target.Name
	pod.Status.NominatedNodeName = ""
	p.Lock()
	p.bound[pod.Name] = pod.Spec.NodeName
	p.Unlock()
	return p.put(pod)
}
