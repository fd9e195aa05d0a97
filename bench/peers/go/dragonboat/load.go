package main

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/lni/dragonboat/v4"
	"github.com/lni/dragonboat/v4/client"

	"ionian/bench/peers/measure"
)

// patience is how long a proposal may take.
const patience = 5 * time.Second

// load keeps inFlight proposals under way. This process's CPU time is reported as that of "leader": it is the
// server and its clients at once.
func load(host *dragonboat.NodeHost, a arguments, inFlight int, warmUp, window time.Duration) (measure.Result, error) {
	pids := measure.Pids{"leader": os.Getpid()}
	for name, pid := range a.pids {
		pids[name] = pid
	}
	p := proposer{host: host, session: host.GetNoOPSession(shard), keys: a.keys, valueBytes: a.valueBytes}
	switch a.client {
	case "goroutines":
		return measure.Run(inFlight, warmUp, window, pids, func(_ int, w *measure.Window, s *measure.Samples) {
			p.oneByOne(w, s)
		})
	case "pipeline":
		return measure.Run(1, warmUp, window, pids, func(_ int, w *measure.Window, s *measure.Samples) {
			p.inOrder(inFlight, w, s)
		})
	}
	return measure.Result{}, fmt.Errorf("a client is goroutines or pipeline; this is %q", a.client)
}

// proposer proposes writes of random keys. Its session is the one without duplicate detection, which costs least.
type proposer struct {
	host       *dragonboat.NodeHost
	session    *client.Session
	keys       int
	valueBytes int
}

// proposal is one that is under way.
type proposal struct {
	began time.Time
	state *dragonboat.RequestState
}

func (p *proposer) propose() (proposal, error) {
	command := make([]byte, keyBytes+p.valueBytes)
	binary.LittleEndian.PutUint64(command, uint64(rand.IntN(p.keys)))
	began := time.Now()
	state, err := p.host.Propose(p.session, command, patience)
	return proposal{began, state}, err
}

func (p proposal) finish(w *measure.Window, s *measure.Samples) {
	result := <-p.state.ResultC()
	var err error
	if !result.Completed() {
		err = fmt.Errorf("proposal ended as %v", result)
	}
	p.state.Release()
	s.Add(w, p.began, err)
}

// oneByOne has one proposal under way.
func (p *proposer) oneByOne(w *measure.Window, s *measure.Samples) {
	for !w.Ended() {
		proposal, err := p.propose()
		if err != nil {
			refused(w, s, err)
			continue
		}
		proposal.finish(w, s)
	}
}

// inOrder has inFlight proposals under way and awaits them in the order in which they were made, which is the order
// in which a shard completes them.
func (p *proposer) inOrder(inFlight int, w *measure.Window, s *measure.Samples) {
	underWay := make([]proposal, 0, inFlight)
	oldest := 0
	for !w.Ended() {
		if len(underWay) == inFlight {
			underWay[oldest].finish(w, s)
		}
		next, err := p.propose()
		for ; err != nil && !w.Ended(); next, err = p.propose() {
			refused(w, s, err)
		}
		if err != nil {
			return
		}
		if len(underWay) < inFlight {
			underWay = append(underWay, next)
			continue
		}
		underWay[oldest] = next
		oldest = (oldest + 1) % inFlight
	}
}

// refused counts a proposal that the library did not take, and lets it breathe.
func refused(w *measure.Window, s *measure.Samples, err error) {
	s.Add(w, time.Now(), err)
	time.Sleep(time.Millisecond)
}
