package main

import (
	"encoding/binary"
	"encoding/gob"
	"io"
	"maps"

	"github.com/lni/dragonboat/v4/statemachine"
)

// keyBytes is the length of the key at the head of a command; the value is the rest.
const keyBytes = 8

// machine is a map in memory. It takes the concurrent form of dragonboat's state machines, which gets entries in
// batches.
type machine struct {
	values map[uint64][]byte
}

func newMachine(_, _ uint64) statemachine.IConcurrentStateMachine {
	return &machine{values: map[uint64][]byte{}}
}

// Update writes the value of each entry; dragonboat calls it from one goroutine at a time.
func (m *machine) Update(entries []statemachine.Entry) ([]statemachine.Entry, error) {
	for i := range entries {
		command := entries[i].Cmd
		m.values[binary.LittleEndian.Uint64(command)] = append([]byte(nil), command[keyBytes:]...)
		entries[i].Result = statemachine.Result{Value: 1}
	}
	return entries, nil
}

// Lookup is not used: the load consists of writes.
func (m *machine) Lookup(any) (any, error) { return nil, nil }

// PrepareSnapshot copies the map, which no update then changes.
func (m *machine) PrepareSnapshot() (any, error) { return maps.Clone(m.values), nil }

// SaveSnapshot writes what PrepareSnapshot has copied.
func (m *machine) SaveSnapshot(
	copied any, w io.Writer, _ statemachine.ISnapshotFileCollection, _ <-chan struct{},
) error {
	return gob.NewEncoder(w).Encode(copied)
}

// RecoverFromSnapshot reads what SaveSnapshot has written.
func (m *machine) RecoverFromSnapshot(r io.Reader, _ []statemachine.SnapshotFile, _ <-chan struct{}) error {
	return gob.NewDecoder(r).Decode(&m.values)
}

// Close has nothing to let go.
func (m *machine) Close() error { return nil }
