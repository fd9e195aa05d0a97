package measure

import (
	"errors"
	"os"
	"testing"
	"time"
)

func TestAWindowCountsWhatCompletesInItAndLeavesOutErrors(t *testing.T) {
	var before, within, after Window
	within.started.Store(true)
	after.started.Store(true)
	after.ended.Store(true)
	var s Samples
	for _, w := range []*Window{&before, &within, &after} {
		s.Add(w, time.Now(), nil)
		s.Add(w, time.Now(), errors.New("refused"))
	}
	if len(s.nanoseconds) != 1 || s.errors != 1 {
		t.Fatalf("%d samples and %d errors, not 1 and 1", len(s.nanoseconds), s.errors)
	}
}

func TestASummaryIsOverAllClientsAndPerCompletedOperation(t *testing.T) {
	first := Samples{nanoseconds: []int64{5_000, 1_000, 3_000}, errors: 1}
	second := Samples{nanoseconds: []int64{2_000, 4_000}}
	before := map[string]float64{"n0": 100}
	after := map[string]float64{"n0": 150}
	result, err := summary([]Samples{first, second}, 2, before, after, 20)
	if err != nil {
		t.Fatal(err)
	}
	if result.Operations != 6 || result.Errors != 1 || result.PerSecond != 2.5 {
		t.Errorf("counts: %+v", result)
	}
	if result.P50 != 3 || result.P99 != 5 {
		t.Errorf("latencies: %+v", result)
	}
	if result.CPU["n0"] != 10 || result.ClientCPU != 4 {
		t.Errorf("processor time: %+v", result)
	}
	if _, err := summary([]Samples{{errors: 3}}, 1, before, after, 0); err == nil {
		t.Error("a window without a completed operation is a result")
	}
}

func TestProcessesAreNamed(t *testing.T) {
	pids := Pids{}
	if err := pids.Set("n0=12"); err != nil || pids["n0"] != 12 {
		t.Fatalf("%v, %v", pids, err)
	}
	for _, wrong := range []string{"12", "n0=", "=12", "n0=x"} {
		if pids.Set(wrong) == nil {
			t.Errorf("%q is taken for a process", wrong)
		}
	}
}

func TestProcessorTimeIsReadFromTheSystem(t *testing.T) {
	for began := time.Now(); time.Since(began) < 50*time.Millisecond; {
	}
	used, err := cpu(Pids{"self": os.Getpid()})
	if err != nil || used["self"] <= 0 {
		t.Fatalf("%v, %v", used, err)
	}
	if _, err := cpu(Pids{"none": 1 << 30}); err == nil {
		t.Error("a process that is not there has processor time")
	}
}
