// Package measure is what the load programs of the peers share: a closed loop's warm-up and window, latencies, and
// the CPU time that the operating system accounts to the processes under test.
package measure

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// ticksPerSecond is the unit of /proc/PID/stat, which Linux fixes at 100 for programs on every architecture Go has.
const ticksPerSecond = 100

// Pids are processes by the name under which their CPU time is reported; a flag `-pid NAME=PID` that repeats.
type Pids map[string]int

// String is asked for by the flag package; the default is no process.
func (p Pids) String() string { return "" }

// Set takes one NAME=PID.
func (p Pids) Set(text string) error {
	name, number, found := strings.Cut(text, "=")
	pid, err := strconv.Atoi(number)
	if !found || name == "" || err != nil {
		return fmt.Errorf("a process is NAME=PID, for example n0=4711; this is %q", text)
	}
	p[name] = pid
	return nil
}

// Result is one window, as it is printed in JSON.
type Result struct {
	// Operations completed in the window, and how many of them failed.
	Operations int `json:"operations"`
	Errors     int `json:"errors"`
	// Seconds the window lasted.
	Seconds float64 `json:"seconds"`
	// PerSecond is operations without an error by seconds.
	PerSecond float64 `json:"per_second"`
	// Latencies in microseconds.
	P50 float64 `json:"p50_us"`
	P99 float64 `json:"p99_us"`
	// CPU is user and system time in microseconds an operation, by process.
	CPU map[string]float64 `json:"cpu_us"`
	// ClientCPU is the same for the process that ran the clients.
	ClientCPU float64 `json:"client_cpu_us"`
}

// Window says which of the operations count.
type Window struct {
	started, ended atomic.Bool
}

// Ended tells a client to stop.
func (w *Window) Ended() bool { return w.ended.Load() }

// Samples are what one client has seen; every client has its own, so that none waits for another.
type Samples struct {
	nanoseconds []int64
	errors      int
}

// Add counts one operation if it completed in the window.
func (s *Samples) Add(w *Window, began time.Time, err error) {
	if !w.started.Load() || w.ended.Load() {
		return
	}
	if err != nil {
		s.errors++
		return
	}
	s.nanoseconds = append(s.nanoseconds, int64(time.Since(began)))
}

// Client is one client of a closed loop, by its number from 0. It returns soon after the window has ended.
type Client func(number int, w *Window, s *Samples)

// Run lets clients go, each with its own samples, and measures them for window after warmUp.
func Run(clients int, warmUp, window time.Duration, pids Pids, client Client) (Result, error) {
	var w Window
	samples := make([]Samples, clients)
	var done sync.WaitGroup
	for number := range clients {
		done.Go(func() { client(number, &w, &samples[number]) })
	}
	time.Sleep(warmUp)
	before, err := cpu(pids)
	own := ownCPU()
	began := time.Now()
	w.started.Store(true)
	time.Sleep(window)
	w.ended.Store(true)
	seconds := time.Since(began).Seconds()
	ownUsed := ownCPU() - own
	after, errAfter := cpu(pids)
	done.Wait()
	if err == nil {
		err = errAfter
	}
	if err != nil {
		return Result{}, err
	}
	return summary(samples, seconds, before, after, ownUsed)
}

func summary(samples []Samples, seconds float64, before, after map[string]float64, own float64) (Result, error) {
	var all []int64
	result := Result{Seconds: seconds, CPU: map[string]float64{}}
	for _, s := range samples {
		all = append(all, s.nanoseconds...)
		result.Errors += s.errors
	}
	if len(all) == 0 {
		return result, fmt.Errorf("no operation completed in the window (%d failed)", result.Errors)
	}
	slices.Sort(all)
	result.Operations = len(all) + result.Errors
	result.PerSecond = float64(len(all)) / seconds
	result.P50 = percentile(all, 0.50)
	result.P99 = percentile(all, 0.99)
	for name, used := range after {
		result.CPU[name] = (used - before[name]) / float64(len(all))
	}
	result.ClientCPU = own / float64(len(all))
	return result, nil
}

func percentile(sorted []int64, share float64) float64 {
	index := min(int(share*float64(len(sorted))), len(sorted)-1)
	return float64(sorted[index]) / 1e3
}

// cpu is the user and system time of each process so far, in microseconds.
func cpu(pids Pids) (map[string]float64, error) {
	used := make(map[string]float64, len(pids))
	for name, pid := range pids {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return nil, fmt.Errorf("process %d (%s): %w", pid, name, err)
		}
		// The second field is the program's name in parentheses and may hold spaces.
		fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
		user, errUser := strconv.ParseFloat(string(fields[11]), 64)
		system, errSystem := strconv.ParseFloat(string(fields[12]), 64)
		if errUser != nil || errSystem != nil {
			return nil, fmt.Errorf("process %d (%s): no times in /proc/%d/stat", pid, name, pid)
		}
		used[name] = (user + system) * 1e6 / ticksPerSecond
	}
	return used, nil
}

func ownCPU() float64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return float64(usage.Utime.Nano()+usage.Stime.Nano()) / 1e3
}
