package main

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagehelpers "k8s.io/component-helpers/storage/volume"
)

// A moment is what can be seen after a step. The fields from Incomplete on are there where the script
// observes them.
type moment struct {
	Popped        [][2]any                        `json:"popped,omitempty"`
	Active        []string                        `json:"active,omitempty"`
	Backoff       []string                        `json:"backoff,omitempty"`
	Unschedulable []string                        `json:"unschedulable,omitempty"`
	Nominated     map[string]string               `json:"nominated,omitempty"`
	Gone          []string                        `json:"gone,omitempty"`
	Incomplete    []string                        `json:"incomplete,omitempty"`
	Waiting       []string                        `json:"waiting,omitempty"`
	Bound         map[string]string               `json:"bound,omitempty"`
	Conditions    map[string]string               `json:"conditions,omitempty"`
	Groups        map[string]map[string][3]string `json:"groups,omitempty"`
	Claims        map[string]string               `json:"claims,omitempty"`
	Calls         []string                        `json:"calls,omitempty"`
}

// An entity that was popped: a pod, or a group of pods.
type entity struct {
	name  string
	group bool
	pods  []*v1.Pod
}

// decided tells what was popped, and the nodes of its pods.
func (p *player) decided(e *entity) [2]any {
	nodes := map[string]string{}
	for _, pod := range e.pods {
		nodes[pod.Name] = p.nodeOf(pod)
	}
	if e.group {
		return [2]any{e.name, nodes}
	}
	return [2]any{e.name, nodes[e.name]}
}

// nodeOf returns the node to which a pod is bound, or is to be bound.
func (p *player) nodeOf(pod *v1.Pod) string {
	if live, ok := p.get("Pod", pod.Namespace, pod.Name); ok && live.(*v1.Pod).Spec.NodeName != "" {
		return live.(*v1.Pod).Spec.NodeName
	}
	if assumed, _ := p.scheduler.Cache.IsAssumedPod(pod); assumed {
		if known, err := p.scheduler.Cache.GetPod(pod); err == nil {
			return known.Spec.NodeName
		}
	}
	return ""
}

func (p *player) look(popped [][2]any) moment {
	queue := p.scheduler.SchedulingQueue
	seen := moment{
		Popped:        popped,
		Active:        names(queue.PodsInActiveQ()),
		Backoff:       names(queue.PodsInBackoffQ()),
		Unschedulable: names(queue.UnschedulablePods()),
		Nominated:     map[string]string{},
		Gone:          slices.Sorted(slices.Values(p.gone)),
	}
	pending := p.pending()
	for _, pod := range pending {
		if pod.Status.NominatedNodeName != "" {
			seen.Nominated[pod.Name] = pod.Status.NominatedNodeName
		}
	}
	for _, aspect := range p.observed {
		switch aspect {
		case "incomplete":
			seen.Incomplete = names(incomplete(queue))
		case "waiting":
			seen.Waiting = names(slices.DeleteFunc(slices.Clone(pending), func(pod *v1.Pod) bool { return p.nodeOf(pod) == "" }))
		case "bound":
			seen.Bound = p.bound
		case "conditions":
			seen.Conditions = conditions(pending)
		case "groups":
			seen.Groups = p.groups()
		case "claims":
			seen.Claims = p.claims()
		case "calls":
			seen.Calls = p.extenders.takeCalls()
		}
	}
	return seen
}

// pending returns the pods without a node, as the API has them.
func (p *player) pending() (pods []*v1.Pod) {
	for _, object := range p.world.of("Pod").stored.List() {
		if pod := object.(*v1.Pod); pod.Spec.NodeName == "" {
			pods = append(pods, pod)
		}
	}
	return pods
}

func names(pods []*v1.Pod) []string {
	var found []string
	for _, pod := range pods {
		found = append(found, pod.Name)
	}
	slices.Sort(found)
	return found
}

func conditions(pods []*v1.Pod) map[string]string {
	found := map[string]string{}
	for _, pod := range pods {
		for _, condition := range pod.Status.Conditions {
			if condition.Type == v1.PodScheduled {
				found[pod.Name] = condition.Reason + ": " + shortened(condition.Message)
			}
		}
	}
	return found
}

// groups returns the conditions of pod groups, by type.
func (p *player) groups() map[string]map[string][3]string {
	found := map[string]map[string][3]string{}
	for name, conditions := range p.groupConditions() {
		for _, one := range conditions {
			if found[name] == nil {
				found[name] = map[string][3]string{}
			}
			found[name][one.Type] = [3]string{string(one.Status), one.Reason, shortened(one.Message)}
		}
	}
	return found
}

// claims returns what claims of volumes and devices, and volumes, are bound to.
func (p *player) claims() map[string]string {
	found := map[string]string{}
	for _, object := range p.world.of("PersistentVolumeClaim").stored.List() {
		claim := object.(*v1.PersistentVolumeClaim)
		if claim.Spec.VolumeName != "" {
			found[claim.Name] = "volume " + claim.Spec.VolumeName
		} else if node := claim.Annotations[storagehelpers.AnnSelectedNode]; node != "" {
			found[claim.Name] = "selected " + node
		}
	}
	for _, object := range p.world.of("PersistentVolume").stored.List() {
		if volume := object.(*v1.PersistentVolume); volume.Spec.ClaimRef != nil {
			found[volume.Name] = "for " + volume.Spec.ClaimRef.Name
		}
	}
	for _, object := range p.world.of("ResourceClaim").stored.List() {
		claim := object.(*resourcev1.ResourceClaim)
		if claim.Status.Allocation == nil {
			continue
		}
		var devices, users []string
		for _, device := range claim.Status.Allocation.Devices.Results {
			devices = append(devices, fmt.Sprintf("%s=%s/%s", device.Request, device.Pool, device.Device))
		}
		for _, user := range claim.Status.ReservedFor {
			users = append(users, user.Name)
		}
		slices.Sort(devices)
		slices.Sort(users)
		found[claim.Name] = strings.Join(devices, " ") + " for " + strings.Join(users, ",")
	}
	return found
}

// shortened leaves out what is said of one of several placements, which is any of them.
func shortened(message string) string {
	short, _, _ := strings.Cut(message, ", first placement status")
	return short
}
