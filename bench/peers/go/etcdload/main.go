// Command etcdload keeps a number of clients of an etcd cluster busy, each with one request outstanding, and prints
// what they saw in a window as one line of JSON.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"ionian/bench/peers/measure"
)

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
	flag.StringVar(&a.operation, "operation", "put", "put, range (linearizable) or serializable-range")
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
		if connections[i], err = clientv3.New(clientv3.Config{Endpoints: []string{leader}, DialTimeout: 5 * time.Second}); err != nil {
			return err
		}
		defer connections[i].Close()
	}
	request, err := requestOf(a)
	if err != nil {
		return err
	}
	result, err := measure.Run(a.clients, a.warmUp, a.window, a.pids, func(number int, w *measure.Window, s *measure.Samples) {
		client := connections[number%len(connections)]
		for !w.Ended() {
			began := time.Now()
			s.Add(w, began, request(client))
		}
	})
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(result)
}

// requestOf is one request of the kind asked for, of a random key.
func requestOf(a arguments) (func(*clientv3.Client) error, error) {
	value := strings.Repeat("x", a.valueBytes)
	key := func() string { return fmt.Sprintf("key:%012d", rand.IntN(a.keys)) }
	switch a.operation {
	case "put":
		return func(c *clientv3.Client) error {
			_, err := c.Put(context.Background(), key(), value)
			return err
		}, nil
	case "range":
		return func(c *clientv3.Client) error {
			_, err := c.Get(context.Background(), key())
			return err
		}, nil
	case "serializable-range":
		return func(c *clientv3.Client) error {
			_, err := c.Get(context.Background(), key(), clientv3.WithSerializable())
			return err
		}, nil
	}
	return nil, fmt.Errorf("an operation is put, range or serializable-range; this is %q", a.operation)
}

// leaderOf waits until the members agree on a leader, for half a minute at most, and is its endpoint.
func leaderOf(endpoints []string) (string, error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints, DialTimeout: 5 * time.Second})
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
