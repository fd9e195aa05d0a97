"""Loads, and the tools that put them on a system."""

import csv
import dataclasses
import io
import json
import subprocess

from harness import accounting
from harness.processes import Failure, stop

KEYS = 100_000
VALUE_BYTES = 16


@dataclasses.dataclass(frozen=True)
class Load:
    """A closed loop: a number of clients, each with a number of commands outstanding."""

    clients: int
    pipeline: int = 1
    operation: str = "write"

    def words(self):
        """The load, for a table."""
        words = ["1 client" if self.clients == 1 else f"{self.clients} clients"]
        if self.pipeline > 1:
            words.append(f"pipeline {self.pipeline}")
        if self.operation != "write":
            words.append(f"{self.operation}s")
        return ", ".join(words)


class InFlight(Load):
    """A program that has a number of commands in flight with a library in the same process."""

    def __init__(self, count):
        super().__init__(1, pipeline=count)

    def words(self):
        return f"{self.pipeline} in flight"


@dataclasses.dataclass(frozen=True)
class Window:
    """How long a load runs before it is measured, and how long it is measured, in seconds."""

    warm_up: float
    seconds: float


def run(command, window):
    """Runs a load tool to its end and is what it printed."""
    words = [str(word) for word in command]
    patience = window.warm_up + window.seconds + 60
    pipe = subprocess.PIPE
    process = subprocess.Popen(words, stdout=pipe, stderr=pipe, text=True, start_new_session=True)
    try:
        printed, complaint = process.communicate(timeout=patience)
    except subprocess.TimeoutExpired as error:
        raise Failure(f"{command[0]} still ran after {patience:.0f} s") from error
    finally:
        stop([process])
    if process.returncode != 0:
        raise Failure(f"`{' '.join(words)}` failed: {complaint.strip()[-800:]}")
    return printed


# What the operations are called elsewhere. A stale read may miss what others have written before it began.
ETCD_OPERATIONS = {"write": "put", "read": "range", "stale read": "serializable-range"}
IONIAN_OPERATIONS = {
    "write": ["--reads", 0],
    "read": ["--reads", 100, "--level", "linearizable"],
    "stale read": ["--reads", 100, "--level", "eventual"],
}


def ionian(program, port, load, window, pids):
    """Ionian's load generator against any server that speaks the Redis protocol."""
    command = ["--target", f"redis://127.0.0.1:{port}", "--yes", "--clients", load.clients, "--pipeline", load.pipeline]
    for name, pid in pids.items():
        command += ["--pid", f"{name}={pid}"]
    return _ionian_bench(program, command, load, window)


def ionian_lanes(program, durability, directory, load, window):
    """Ionian's load generator as one of three nodes that it starts, asking through the library's own lane."""
    command = ["--lanes", "--in-flight", load.pipeline, "--preset", "colocated"]
    command += ["--durability", durability, "--data", directory]
    return _ionian_bench(program, command, load, window)


def _ionian_bench(program, command, load, window):
    common = ["--keys", KEYS, "--value-bytes", VALUE_BYTES, *IONIAN_OPERATIONS[load.operation]]
    common += ["--warm-up", window.warm_up, "--seconds", window.seconds, "--rounds", 1, "--json", "-"]
    side = json.loads(run([program, "bench", *command, *common], window))["sides"][0]
    (measured,) = side["rounds"]
    return {
        "operations": measured["answered"],
        "errors": sum(measured["errors"].values()) + measured["unfinished"],
        "seconds": window.seconds,
        "per_second": measured["per_second"],
        "p50_us": measured["latency_ms"]["p50"] * 1e3,
        "p99_us": measured["latency_ms"]["p99"] * 1e3,
        "cpu_us": dict(zip(side["processes"], measured["processor_us"])),
        "client_cpu_us": measured["bench_us"],
        "client_limited": measured["bench_limited"],
    }


def redis_benchmark(program, port, load, window, pids):
    """Redis's own load generator, which counts requests and not seconds: a first run finds out how many fit."""

    if load.operation != "write":
        raise Failure("redis-benchmark is used for writes only")

    def requests(count):
        command = [program, "-p", port, "-c", load.clients, "-P", load.pipeline, "-d", VALUE_BYTES, "-r", KEYS]
        printed = run([*command, "-t", "set", "-n", count, "--csv"], window)
        return next(csv.DictReader(io.StringIO(printed)))

    rate, count = 0.0, 2_000 * load.pipeline
    while rate == 0.0 or count < rate * window.warm_up:
        count = max(count * 2, int(rate * window.warm_up))
        rate = float(requests(count)["rps"])
    before = {name: accounting.process_cpu_us(pid) for name, pid in pids.items()}
    count = max(1, int(rate * window.seconds))
    row = requests(count)
    after = {name: accounting.process_cpu_us(pid) for name, pid in pids.items()}
    return {
        "operations": count,
        "errors": 0,
        "seconds": count / float(row["rps"]),
        "per_second": float(row["rps"]),
        "p50_us": float(row["p50_latency_ms"]) * 1e3,
        "p99_us": float(row["p99_latency_ms"]) * 1e3,
        "cpu_us": {name: (after[name] - before[name]) / count for name in pids},
    }


def etcd(program, endpoints, load, window, pids):
    """The load generator of the Go module beside this script."""
    command = [program, "-endpoints", ",".join(endpoints), "-clients", load.clients, ]
    command += ["-operation", ETCD_OPERATIONS[load.operation]]
    command += ["-keys", KEYS, "-value-bytes", VALUE_BYTES]
    command += ["-warm-up", f"{window.warm_up}s", "-window", f"{window.seconds}s"]
    for name, pid in pids.items():
        command += ["-pid", f"{name}={pid}"]
    return json.loads(run(command, window))
