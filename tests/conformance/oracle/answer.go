package main

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// An answer has the form of "expect" of the recorded cases.
type answer struct {
	ConfigError string                      `json:"configError,omitempty"`
	PreFilter   *verdict                    `json:"preFilter,omitempty"`
	NodeNames   []string                    `json:"nodeNames,omitempty"`
	SkipFilter  []string                    `json:"skipFilter,omitempty"`
	SkipScore   []string                    `json:"skipScore,omitempty"`
	Filter      map[string]verdict          `json:"filter,omitempty"`
	Feasible    []string                    `json:"feasible"`
	Scores      map[string]map[string]int64 `json:"scores,omitempty"`
	Total       map[string]int64            `json:"total,omitempty"`
	Message     string                      `json:"message,omitempty"`
	Preemption  []outcome                   `json:"preemption,omitempty"`
	Trace       []moment                    `json:"trace,omitempty"`
	Error       string                      `json:"error,omitempty"`
}

type verdict struct {
	Code    string   `json:"code"`
	Plugin  string   `json:"plugin,omitempty"`
	Reasons []string `json:"reasons,omitempty"`
}

// An outcome of PostFilter.
type outcome struct {
	Node    string   `json:"node"`
	Victims []string `json:"victims,omitempty"`
	Code    string   `json:"code"`
	Message string   `json:"message,omitempty"`
}

// How often PostFilter is run, and how often when ties seem to be broken at random.
const (
	preemptions       = 12
	preemptionsOfATie = 80
)

func ask(t *testing.T, q question) (a *answer) {
	a = &answer{}
	defer func() {
		if fault := recover(); fault != nil {
			a.Error = fmt.Sprint("panic: ", fault)
		}
	}()
	var err error
	if q.Pod == nil {
		a.Trace, err = play(t, q)
	} else {
		err = decide(q, a)
	}
	var refused configError
	if errors.As(err, &refused) {
		a.ConfigError = err.Error()
	} else if err != nil {
		a.Error = err.Error()
	}
	return a
}

func decide(q question, a *answer) error {
	ctx := context.Background()
	c, err := newCluster(ctx, q)
	if c != nil {
		defer c.stop()
	}
	if err != nil {
		return err
	}
	return c.decide(ctx, a)
}

// decide runs a scheduling cycle without sampling nodes, and without the binding.
func (c *cluster) decide(ctx context.Context, a *answer) error {
	nodes, err := c.snapshot.NodeInfos().List()
	if err != nil {
		return err
	}
	if len(nodes) == 0 {
		return scheduler.ErrNoNodesAvailable
	}
	state := framework.NewCycleState()
	state.Write(framework.PodsToActivateKey, framework.NewPodsToActivate())
	diagnosis := framework.Diagnosis{NodeToStatus: framework.NewDefaultNodeToStatus()}
	narrowed, status, by := c.profile.RunPreFilterPlugins(ctx, state, c.pod)
	a.PreFilter = toVerdict(status)
	a.SkipFilter = sets.List(state.GetSkipFilterPlugins())
	var feasible []fwk.NodeInfo
	switch {
	case status.IsSuccess():
		if !narrowed.AllNodes() {
			a.NodeNames = sets.List(narrowed.NodeNames)
			nodes = slices.DeleteFunc(slices.Clone(nodes), func(node fwk.NodeInfo) bool {
				return !narrowed.NodeNames.Has(node.Node().Name)
			})
			reason := fmt.Sprintf("node(s) didn't satisfy plugin(s) %v", sets.List(by))
			diagnosis.NodeToStatus.SetAbsentNodesStatus(fwk.NewStatus(fwk.UnschedulableAndUnresolvable, reason))
		}
		if feasible, err = c.filter(ctx, state, nodes, a, diagnosis); err != nil {
			return err
		}
	case status.IsRejected():
		diagnosis.NodeToStatus.SetAbsentNodesStatus(status)
		diagnosis.PreFilterMsg = status.Message()
	default: // an error, of which the verdict tells
		return nil
	}
	if len(feasible) > 0 {
		return c.score(ctx, state, feasible, a)
	}
	fault := framework.FitError{Pod: c.pod, NumAllNodes: c.snapshot.NumNodesInPlacement(), Diagnosis: diagnosis}
	a.Message = fault.Error()
	if c.profile.HasPostFilterPlugins() {
		a.Preemption = c.preempt(ctx, state, diagnosis)
	}
	return nil
}

func (c *cluster) filter(ctx context.Context, state fwk.CycleState, nodes []fwk.NodeInfo, a *answer, diagnosis framework.Diagnosis) ([]fwk.NodeInfo, error) {
	var feasible []fwk.NodeInfo
	for _, node := range nodes {
		status := c.profile.RunFilterPluginsWithNominatedPods(ctx, state, c.pod, node)
		if status.IsSuccess() {
			feasible = append(feasible, node)
		} else {
			diagnosis.NodeToStatus.Set(node.Node().Name, status)
		}
	}
	feasible, err := c.passExtenders(ctx, feasible, diagnosis.NodeToStatus)
	if err != nil {
		return nil, err
	}
	a.Filter = map[string]verdict{}
	diagnosis.NodeToStatus.ForEachExplicitNode(func(name string, status *fwk.Status) { a.Filter[name] = *toVerdict(status) })
	for _, node := range feasible {
		a.Feasible = append(a.Feasible, node.Node().Name)
	}
	slices.Sort(a.Feasible)
	return feasible, nil
}

func (c *cluster) score(ctx context.Context, state fwk.CycleState, feasible []fwk.NodeInfo, a *answer) error {
	ranking, err := c.prioritize(ctx, state, feasible)
	if err != nil {
		return err
	}
	a.SkipScore = sets.List(state.GetSkipScorePlugins())
	a.Scores, a.Total = map[string]map[string]int64{}, map[string]int64{}
	for _, node := range ranking {
		// The sum: kube-scheduler says 1 where nothing gives points.
		a.Total[node.Name] = 0
		a.Scores[node.Name] = map[string]int64{}
		for _, score := range node.Scores {
			a.Total[node.Name] += score.Score
			a.Scores[node.Name][score.Name] = score.Score
		}
	}
	return nil
}

// preempt returns the different outcomes of repeated runs.
func (c *cluster) preempt(ctx context.Context, state fwk.CycleState, diagnosis framework.Diagnosis) []outcome {
	var outcomes []outcome
	times := preemptions
	for i := 0; i < times; i++ {
		result, status := c.profile.RunPostFilterPlugins(ctx, state.Clone(), c.pod, diagnosis.NodeToStatus)
		victims := c.writes.takeDeleted()
		slices.Sort(victims)
		found := outcome{Victims: victims, Code: status.Code().String(), Message: status.Message()}
		if result != nil && result.NominatingInfo != nil {
			found.Node = result.NominatedNodeName
		}
		if !slices.ContainsFunc(outcomes, func(known outcome) bool { return reflect.DeepEqual(known, found) }) {
			outcomes = append(outcomes, found)
		}
		if len(outcomes) > 1 {
			times = preemptionsOfATie
		}
	}
	return outcomes
}

func toVerdict(status *fwk.Status) *verdict {
	if status.IsSuccess() {
		return &verdict{Code: status.Code().String()}
	}
	reasons := slices.Sorted(slices.Values(status.Reasons()))
	return &verdict{status.Code().String(), status.Plugin(), reasons}
}
