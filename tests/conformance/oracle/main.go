// The oracle answers scheduling questions by running kube-scheduler's own code.
//
// It reads cases (JSON lines, in the form of tests/conformance/cases) from its standard input and
// writes a line {"id", "expect"} for each, in the same order.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"k8s.io/apimachinery/pkg/util/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"
	"k8s.io/klog/v2"
)

// A question is a case as it is recorded, without the answer.
type question struct {
	ID       string            `json:"id"`
	Features []string          `json:"features"`
	Config   json.RawMessage   `json:"config"`
	Objects  []json.RawMessage `json:"objects"`
	Pod      json.RawMessage   `json:"pod"`
	Steps    []step            `json:"steps"`
	Observe  []string          `json:"observe"`

	Extenders map[string]behaviour `json:"extenders"`
}

type line struct {
	ID     string  `json:"id"`
	Expect *answer `json:"expect"`
}

// inline runs what PostFilter starts before it returns.
var inline = []string{"SchedulerAsyncPreemption=false", "SchedulerAsyncAPICalls=false"}

var (
	workers     = flag.Int("workers", 4, "how many questions are worked on at once")
	onlyMetrics = flag.Bool("metrics", false, "answer no questions, but describe kube-scheduler's metrics")
)

// main runs as a test, for testing/synctest asks for one.
func main() {
	silence()
	signal.Notify(make(chan os.Signal, 1), syscall.SIGUSR2) // kube-scheduler's cache debugger wants it: outside of any bubble
	any := func(string, string) (bool, error) { return true, nil }
	testing.Main(any, []testing.InternalTest{{Name: "oracle", F: func(t *testing.T) {
		work := answerStream
		if *onlyMetrics {
			work = func(_ *testing.T, _ io.Reader, out io.Writer) error { return describeMetrics(out) }
		}
		if err := work(t, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0) // before anything is said of a test
	}}}, nil, nil)
}

func silence() {
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	runtime.ErrorHandlers = nil
}

func answerStream(t *testing.T, in io.Reader, out io.Writer) error {
	questions, err := read(in)
	if err != nil {
		return err
	}
	buffered := bufio.NewWriter(out)
	encoder := json.NewEncoder(buffered)
	for len(questions) > 0 {
		same := withSameFeatures(questions)
		for i, found := range answerAll(t, same) {
			if err := encoder.Encode(line{same[i].ID, found}); err != nil {
				return err
			}
		}
		questions = questions[len(same):]
	}
	return buffered.Flush()
}

func read(in io.Reader) ([]question, error) {
	var questions []question
	decoder := json.NewDecoder(in)
	for {
		var q question
		if err := decoder.Decode(&q); errors.Is(err, io.EOF) {
			return questions, nil
		} else if err != nil {
			return nil, fmt.Errorf("question %d: %w", len(questions)+1, err)
		}
		questions = append(questions, q)
	}
}

// withSameFeatures returns as many of the first questions as want the same feature gates: gates are
// global, so only those can be answered in parallel.
func withSameFeatures(questions []question) []question {
	for i, q := range questions {
		if !slices.Equal(q.Features, questions[0].Features) {
			return questions[:i]
		}
	}
	return questions
}

func answerAll(t *testing.T, questions []question) []*answer {
	features := slices.Concat(inline, questions[0].Features)
	err := setFeatures(features)
	defer resetFeatures(features)
	answers := make([]*answer, len(questions))
	places := make(chan struct{}, *workers)
	var working sync.WaitGroup
	for i, q := range questions {
		if err != nil {
			answers[i] = &answer{ConfigError: err.Error()}
			continue
		}
		places <- struct{}{}
		working.Go(func() {
			defer func() { <-places }()
			answers[i] = ask(t, q)
		})
	}
	working.Wait()
	return answers
}

// setFeatures tries a copy first: an invalid gate would leave the set of them half changed.
func setFeatures(assignments []string) error {
	value := strings.Join(assignments, ",")
	if err := utilfeature.DefaultMutableFeatureGate.DeepCopy().Set(value); err != nil {
		return err
	}
	return utilfeature.DefaultMutableFeatureGate.Set(value)
}

func resetFeatures(assignments []string) {
	for _, assignment := range assignments {
		name, _, _ := strings.Cut(assignment, "=")
		// An error says that the gate was not set.
		_ = utilfeature.DefaultMutableFeatureGate.ResetFeatureValueToDefault(featuregate.Feature(name))
	}
}
