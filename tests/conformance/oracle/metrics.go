package main

import (
	"encoding/json"
	"io"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/component-base/metrics/legacyregistry"
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // registers metrics, as cmd/kube-scheduler does
	"k8s.io/kubernetes/pkg/scheduler/metrics"
)

// A description of a metric, as far as dashboards depend on it.
type description struct {
	Name      string    `json:"name"`
	Kind      string    `json:"kind"`
	Stability string    `json:"stability"`
	Labels    []string  `json:"labels"`
	Buckets   []float64 `json:"buckets"`
	Help      string    `json:"help"`
}

var ofDescription = regexp.MustCompile(`^Desc\{fqName: "(\w+)", help: "\[(\w+)\] (.*?)"(?:, unit: ".*")?, constLabels: \{.*\}, variableLabels: \{(.*)\}\}$`)

// describeMetrics writes a line for each metric that a kube-scheduler with all gates registers, whether
// it has been observed or not: /metrics shows the others only.
func describeMetrics(out io.Writer) error {
	if err := setFeatures([]string{"AllAlpha=true", "AllBeta=true"}); err != nil {
		return err
	}
	metrics.Register()
	encoder := json.NewEncoder(out)
	for _, collector := range collectors() {
		kind := kindOf(collector)
		descriptions := make(chan *prometheus.Desc)
		go func() {
			collector.Describe(descriptions)
			close(descriptions)
		}()
		for one := range descriptions {
			parts := ofDescription.FindStringSubmatch(one.String())
			if parts == nil || kind == "" {
				continue // metrics of the Go runtime
			}
			labels := strings.FieldsFunc(parts[4], func(r rune) bool { return r == ',' })
			if err := encoder.Encode(description{parts[1], kind, parts[2], labels, buckets(collector), parts[3]}); err != nil {
				return err
			}
		}
	}
	return nil
}

// collectors returns what is registered, in no order.
func collectors() (found []prometheus.Collector) {
	registry := reflect.ValueOf(legacyregistry.DefaultGatherer).Elem().FieldByName("PromRegistry").Interface().(*prometheus.Registry)
	field := reflect.ValueOf(registry).Elem().FieldByName("collectorsByID")
	for _, collector := range *(*map[uint64]prometheus.Collector)(field.Addr().UnsafePointer()) {
		found = append(found, collector)
	}
	return found
}

// kindOf returns "counter" of a *metrics.CounterVec; "" of a collector that is of none of the kinds.
func kindOf(collector prometheus.Collector) string {
	name := strings.ToLower(reflect.TypeOf(collector).Elem().Name())
	kinds := []string{"counter", "gauge", "histogram"}
	if i := slices.IndexFunc(kinds, func(kind string) bool { return strings.HasPrefix(strings.TrimPrefix(name, "timing"), kind) }); i >= 0 {
		return kinds[i]
	}
	return ""
}

func buckets(collector prometheus.Collector) []float64 {
	if field := reflect.ValueOf(collector).Elem().FieldByName("Buckets"); field.IsValid() {
		return field.Interface().([]float64)
	}
	return nil
}
