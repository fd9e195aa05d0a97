// Command dragonboat is one of three processes that replicate a map with the dragonboat library. The one that is
// given -client leads, and runs a load for each line `IN_FLIGHT WARM_UP WINDOW` (for example `128 2s 8s`) that it
// reads from its standard input; the result of each is one line of JSON on its standard output.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/lni/dragonboat/v4"
	"github.com/lni/dragonboat/v4/config"
	"github.com/lni/dragonboat/v4/logger"
	"github.com/lni/dragonboat/v4/plugin/tan"

	"ionian/bench/peers/measure"
)

const shard = 1

// loggers are the packages of the library that write a log.
var loggers = []string{"raft", "rsm", "transport", "logdb", "dragonboat", "grpc", "raftpb", "config", "tan", "pebblekv"}

type arguments struct {
	replica    uint64
	addresses  []string
	data       string
	logEngine  string
	client     string
	keys       int
	valueBytes int
	pids       measure.Pids
}

func parse() arguments {
	a := arguments{pids: measure.Pids{}}
	addresses := flag.String("addresses", "", "of all three processes, by commas")
	flag.Uint64Var(&a.replica, "replica", 1, "which of the addresses is this process's, from 1")
	flag.StringVar(&a.data, "data", "", "directory for the log")
	flag.StringVar(&a.logEngine, "log-engine", "tan", "tan, or pebble (dragonboat's default)")
	flag.StringVar(&a.client, "client", "",
		"lead, and run clients here: goroutines (one for each command in flight) or pipeline (one goroutine)")
	flag.IntVar(&a.keys, "keys", 100_000, "different keys")
	flag.IntVar(&a.valueBytes, "value-bytes", 16, "bytes of a value")
	flag.Var(a.pids, "pid", "NAME=PID of another process whose CPU time is measured; repeats")
	flag.Parse()
	a.addresses = strings.Split(*addresses, ",")
	return a
}

func main() {
	if err := run(parse()); err != nil {
		fmt.Fprintln(os.Stderr, "dragonboat:", err)
		os.Exit(1)
	}
}

func run(a arguments) error {
	for _, name := range loggers {
		logger.GetLogger(name).SetLevel(logger.ERROR)
	}
	host, err := start(a)
	if err != nil {
		return err
	}
	defer host.Close()
	if a.client == "" {
		fmt.Println("ready")
		// Until the parent closes standard input, or ends.
		bufio.NewScanner(os.Stdin).Scan()
		return nil
	}
	if err := lead(host, a.replica); err != nil {
		return err
	}
	fmt.Println("ready")
	return serve(host, a)
}

// start joins the shard. A tick is 10 ms, so heartbeats come every 100 ms and elections after a second. Whatever else
// costs throughput is off, as it is by default: no snapshots within a run, no compression, no limit of memory.
func start(a arguments) (*dragonboat.NodeHost, error) {
	expert := config.GetDefaultExpertConfig()
	switch a.logEngine {
	case "tan":
		expert.LogDBFactory = tan.Factory
	case "pebble":
	default:
		return nil, fmt.Errorf("a log engine is tan or pebble; this is %q", a.logEngine)
	}
	host, err := dragonboat.NewNodeHost(config.NodeHostConfig{
		NodeHostDir:    a.data,
		RTTMillisecond: 10,
		RaftAddress:    a.addresses[a.replica-1],
		Expert:         expert,
	})
	if err != nil {
		return nil, err
	}
	members := map[uint64]dragonboat.Target{}
	for i, address := range a.addresses {
		members[uint64(i+1)] = address
	}
	return host, host.StartConcurrentReplica(members, false, newMachine, config.Config{
		ShardID:      shard,
		ReplicaID:    a.replica,
		ElectionRTT:  100,
		HeartbeatRTT: 10,
		CheckQuorum:  true,
	})
}

// lead waits until this replica is the shard's leader and asks for it meanwhile, for half a minute at most.
func lead(host *dragonboat.NodeHost, replica uint64) error {
	for range 150 {
		leader, _, known, err := host.GetLeaderID(shard)
		if err == nil && known && leader == replica {
			return nil
		}
		if err == nil && known {
			// A refusal only means that the next round asks again.
			_ = host.RequestLeaderTransfer(shard, replica)
		}
		time.Sleep(200 * time.Millisecond)
	}
	return fmt.Errorf("replica %d does not lead after 30 s", replica)
}

// serve runs the loads that standard input asks for.
func serve(host *dragonboat.NodeHost, a arguments) error {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var inFlight int
		var warmUp, window string
		if _, err := fmt.Sscan(lines.Text(), &inFlight, &warmUp, &window); err != nil {
			return fmt.Errorf("a load is IN_FLIGHT WARM_UP WINDOW; this is %q: %w", lines.Text(), err)
		}
		before, err := time.ParseDuration(warmUp)
		if err != nil {
			return err
		}
		during, err := time.ParseDuration(window)
		if err != nil {
			return err
		}
		result, err := load(host, a, inFlight, before, during)
		if err != nil {
			return err
		}
		if err := json.NewEncoder(os.Stdout).Encode(result); err != nil {
			return err
		}
	}
	return lines.Err()
}
