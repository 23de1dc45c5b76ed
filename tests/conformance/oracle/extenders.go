package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path"
	"reflect"
	"slices"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// A behaviour is what an extender answers, by verb.
type behaviour map[string]response

// A response is what an extender answers to one verb; which fields a verb has is in the README of the cases.
type response struct {
	Status       int                    `json:"status"`
	Error        string                 `json:"error"`
	Failed       map[string]string      `json:"failed"`
	Unresolvable map[string]string      `json:"unresolvable"`
	Dropped      []string               `json:"dropped"`
	Scores       map[string]int64       `json:"scores"`
	Victims      map[string][]types.UID `json:"victims"`
}

// fakeExtenders are the HTTP extenders of a question: their behaviours by urlPrefix, and the
// requests since the last look.
type fakeExtenders struct {
	sync.Mutex
	behaviours map[string]behaviour
	calls      []string
	bind       func(*v1.Binding) error
}

// answerFor lets kube-scheduler's HTTP extenders talk to these instead of the network; without behaviours
// none is called.
func (f *fakeExtenders) answerFor(s *scheduler.Scheduler, configured []config.Extender) {
	if f.behaviours == nil {
		withoutExtenders(s)
	}
	asked := slices.Clone(configured) // kube-scheduler asks ignorable ones last
	slices.SortStableFunc(asked, func(a, b config.Extender) int { return cmp.Compare(rank(a), rank(b)) })
	for i, one := range anyProfile(s).Extenders() {
		client := (*http.Client)(reflect.ValueOf(one).Elem().FieldByName("client").UnsafePointer())
		client.Transport = fakeTransport{f, asked[i]}
	}
}

// anyProfile returns one of the profiles, which all have the same extenders.
func anyProfile(s *scheduler.Scheduler) framework.Framework {
	for _, profile := range s.Profiles {
		return profile
	}
	panic("a scheduler without profiles")
}

func rank(one config.Extender) int {
	if one.Ignorable {
		return 1
	}
	return 0
}

func (f *fakeExtenders) takeCalls() []string {
	f.Lock()
	defer f.Unlock()
	calls := f.calls
	f.calls = nil
	slices.Sort(calls)
	return calls
}

type fakeTransport struct {
	*fakeExtenders
	config config.Extender
}

func (t fakeTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	defer request.Body.Close()
	status, answer, err := t.answer(t.verb(path.Base(request.URL.Path)), request.Body)
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(answer)
	return &http.Response{StatusCode: status, Body: io.NopCloser(bytes.NewReader(body)), Request: request}, err
}

// verb returns which verb a configured one is.
func (t fakeTransport) verb(configured string) string {
	return map[string]string{
		t.config.FilterVerb: "filter", t.config.PrioritizeVerb: "prioritize", t.config.PreemptVerb: "preempt", t.config.BindVerb: "bind",
	}[configured]
}

func (t fakeTransport) answer(verb string, body io.Reader) (status int, answer any, err error) {
	t.Lock()
	behaves := t.behaviours[t.config.URLPrefix][verb]
	t.Unlock()
	decoder := json.NewDecoder(body)
	var pod string
	var nodes []string
	switch verb {
	case "filter", "prioritize":
		var args extenderv1.ExtenderArgs
		err = decoder.Decode(&args)
		pod, nodes = args.Pod.Name, namesIn(args)
		if verb == "filter" {
			answer = filtered(args, nodes, behaves)
		} else {
			answer = priorities(nodes, behaves.Scores)
		}
	case "preempt":
		var args extenderv1.ExtenderPreemptionArgs
		err = decoder.Decode(&args)
		candidates := metaVictims(args)
		pod, nodes = args.Pod.Name, slices.Collect(maps.Keys(candidates))
		answer = preempted(candidates, behaves)
	case "bind":
		var args extenderv1.ExtenderBindingArgs
		err = decoder.Decode(&args)
		pod, nodes = args.PodName, []string{args.Node}
		if behaves.Status == 0 && behaves.Error == "" && err == nil {
			err = t.bind(&v1.Binding{
				ObjectMeta: metav1.ObjectMeta{Namespace: args.PodNamespace, Name: args.PodName, UID: args.PodUID},
				Target:     v1.ObjectReference{Kind: "Node", Name: args.Node},
			})
		}
		answer = extenderv1.ExtenderBindingResult{Error: behaves.Error}
	}
	slices.Sort(nodes)
	t.Lock()
	defer t.Unlock()
	t.calls = append(t.calls, fmt.Sprintf("%s %s %s %s", path.Base(t.config.URLPrefix), verb, pod, strings.Join(nodes, ",")))
	if behaves.Status != 0 {
		return behaves.Status, nil, err
	}
	return http.StatusOK, answer, err
}

func namesIn(args extenderv1.ExtenderArgs) (names []string) {
	if args.NodeNames != nil {
		return slices.Clone(*args.NodeNames)
	}
	for _, node := range args.Nodes.Items {
		names = append(names, node.Name)
	}
	return names
}

func filtered(args extenderv1.ExtenderArgs, names []string, behaves response) *extenderv1.ExtenderFilterResult {
	if behaves.Error != "" {
		return &extenderv1.ExtenderFilterResult{Error: behaves.Error}
	}
	failed, unresolvable := among(names, behaves.Failed), among(names, behaves.Unresolvable)
	gone := func(name string) bool {
		_, fails := failed[name]
		_, never := unresolvable[name]
		return fails || never || slices.Contains(behaves.Dropped, name)
	}
	result := &extenderv1.ExtenderFilterResult{FailedNodes: failed, FailedAndUnresolvableNodes: unresolvable}
	if args.NodeNames != nil {
		kept := slices.DeleteFunc(slices.Clone(*args.NodeNames), gone)
		result.NodeNames = &kept
	} else {
		kept := slices.DeleteFunc(args.Nodes.Items, func(node v1.Node) bool { return gone(node.Name) })
		result.Nodes = &v1.NodeList{Items: kept}
	}
	return result
}

// among returns the entries for these names.
func among[V any](names []string, all map[string]V) map[string]V {
	found := map[string]V{}
	for _, name := range names {
		if value, ok := all[name]; ok {
			found[name] = value
		}
	}
	return found
}

func priorities(names []string, scores map[string]int64) extenderv1.HostPriorityList {
	list := extenderv1.HostPriorityList{}
	for name, score := range among(names, scores) {
		list = append(list, extenderv1.HostPriority{Host: name, Score: min(score, extenderv1.MaxExtenderPriority)})
	}
	return list
}

// metaVictims returns the candidates in the form with UIDs, in whichever they are given.
func metaVictims(args extenderv1.ExtenderPreemptionArgs) map[string]*extenderv1.MetaVictims {
	candidates := args.NodeNameToMetaVictims
	for name, victims := range args.NodeNameToVictims {
		if candidates == nil {
			candidates = map[string]*extenderv1.MetaVictims{}
		}
		meta := &extenderv1.MetaVictims{NumPDBViolations: victims.NumPDBViolations}
		for _, pod := range victims.Pods {
			meta.Pods = append(meta.Pods, &extenderv1.MetaPod{UID: string(pod.UID)})
		}
		candidates[name] = meta
	}
	return candidates
}

func preempted(candidates map[string]*extenderv1.MetaVictims, behaves response) extenderv1.ExtenderPreemptionResult {
	left := map[string]*extenderv1.MetaVictims{}
	for name, victims := range candidates {
		if slices.Contains(behaves.Dropped, name) {
			continue
		}
		if uids, ok := behaves.Victims[name]; ok {
			victims = &extenderv1.MetaVictims{NumPDBViolations: victims.NumPDBViolations}
			for _, uid := range uids {
				victims.Pods = append(victims.Pods, &extenderv1.MetaPod{UID: string(uid)})
			}
		}
		left[name] = victims
	}
	return extenderv1.ExtenderPreemptionResult{NodeNameToMetaVictims: left}
}
