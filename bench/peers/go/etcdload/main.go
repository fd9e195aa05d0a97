// Command etcdload keeps a number of clients of an etcd cluster busy, each with one request outstanding, and prints
// what they saw in a window as one line of JSON.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"ionian/bench/peers/measure"
)

// operationsInTransaction is etcd's limit, by default.
const operationsInTransaction = 128

type arguments struct {
	endpoints   string
	clients     int
	connections int
	keys        int
	valueBytes  int
	operation   string
	warmUp      time.Duration
	window      time.Duration
	pids        measure.Pids
}

func parse() arguments {
	a := arguments{pids: measure.Pids{}}
	flag.StringVar(&a.endpoints, "endpoints", "127.0.0.1:2379", "members, by commas; connections go to the one that leads")
	flag.IntVar(&a.clients, "clients", 1, "clients, each with one request outstanding")
	flag.IntVar(&a.connections, "connections", 1, "gRPC connections that the clients share (etcd's own benchmark: 1)")
	flag.IntVar(&a.keys, "keys", 100_000, "different keys")
	flag.IntVar(&a.valueBytes, "value-bytes", 16, "bytes of a value")
	flag.StringVar(&a.operation, "operation", "put", "put, range (linearizable) or serializable-range; before ranges all keys are written")
	flag.DurationVar(&a.warmUp, "warm-up", 2*time.Second, "time before the window")
	flag.DurationVar(&a.window, "window", 8*time.Second, "time measured")
	flag.Var(a.pids, "pid", "NAME=PID of a process whose CPU time is measured; repeats")
	flag.Parse()
	return a
}

func main() {
	if err := run(parse()); err != nil {
		fmt.Fprintln(os.Stderr, "etcdload:", err)
		os.Exit(1)
	}
}

func run(a arguments) error {
	leader, err := leaderOf(strings.Split(a.endpoints, ","))
	if err != nil {
		return err
	}
	connections := make([]*clientv3.Client, a.connections)
	for i := range connections {
		if connections[i], err = connect(leader); err != nil {
			return err
		}
		defer connections[i].Close()
	}
	request, err := requestOf(a)
	if err != nil {
		return err
	}
	if a.operation != "put" {
		if err := fill(connections[0], a); err != nil {
			return fmt.Errorf("the keys could not be written: %w", err)
		}
	}
	client := func(number int, w *measure.Window, s *measure.Samples) {
		connection := connections[number%len(connections)]
		for !w.Ended() {
			began := time.Now()
			s.Add(w, began, request(connection))
		}
	}
	result, err := measure.Run(a.clients, a.warmUp, a.window, a.pids, client)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(result)
}

func connect(endpoints ...string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: endpoints, DialTimeout: 5 * time.Second})
}

func keyOf(number int) string { return fmt.Sprintf("key:%012d", number) }

// fill writes every key, as many in a transaction as etcd takes.
func fill(client *clientv3.Client, a arguments) error {
	value := strings.Repeat("x", a.valueBytes)
	for first := 0; first < a.keys; first += operationsInTransaction {
		var puts []clientv3.Op
		for number := first; number < min(first+operationsInTransaction, a.keys); number++ {
			puts = append(puts, clientv3.OpPut(keyOf(number), value))
		}
		if _, err := client.Txn(context.Background()).Then(puts...).Commit(); err != nil {
			return err
		}
	}
	return nil
}

// requestOf is one request of the kind asked for, of a random key.
func requestOf(a arguments) (func(*clientv3.Client) error, error) {
	value := strings.Repeat("x", a.valueBytes)
	key := func() string { return keyOf(rand.IntN(a.keys)) }
	switch a.operation {
	case "put":
		return func(c *clientv3.Client) error {
			_, err := c.Put(context.Background(), key(), value)
			return err
		}, nil
	case "range":
		return func(c *clientv3.Client) error {
			reply, err := c.Get(context.Background(), key())
			return found(reply, err)
		}, nil
	case "serializable-range":
		return func(c *clientv3.Client) error {
			reply, err := c.Get(context.Background(), key(), clientv3.WithSerializable())
			return found(reply, err)
		}, nil
	}
	return nil, fmt.Errorf("an operation is put, range or serializable-range; this is %q", a.operation)
}

// found is an error unless a read has found its key.
func found(reply *clientv3.GetResponse, err error) error {
	if err == nil && reply.Count == 0 {
		return errors.New("a key that was written is not there")
	}
	return err
}

// leaderOf waits until the members agree on a leader, for half a minute at most, and is its endpoint.
func leaderOf(endpoints []string) (string, error) {
	client, err := connect(endpoints...)
	if err != nil {
		return "", err
	}
	defer client.Close()
	for range 150 {
		for _, endpoint := range endpoints {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			status, err := client.Status(ctx, endpoint)
			cancel()
			if err == nil && status.Leader != 0 && status.Leader == status.Header.MemberId {
				return endpoint, nil
			}
		}
		time.Sleep(200 * time.Millisecond)
	}
	return "", fmt.Errorf("none of %v leads after 30 s", endpoints)
}
