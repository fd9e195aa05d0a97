"""Loads, and the tools that put them on a system."""

import csv
import dataclasses
import io
import json
import subprocess

from harness.processes import Failure
from harness import accounting

KEYS = 100_000
VALUE_BYTES = 16


@dataclasses.dataclass(frozen=True)
class Load:
    """A closed loop: so many clients, each with so many commands outstanding."""

    clients: int
    pipeline: int = 1
    operation: str = "put"

    def words(self):
        """The load, for a table."""
        count = "1 client" if self.clients == 1 else f"{self.clients} clients"
        return count if self.pipeline == 1 else f"{count}, pipeline {self.pipeline}"


@dataclasses.dataclass(frozen=True)
class Window:
    """How long a load runs before it is measured, and how long it is measured, in seconds."""

    warm_up: float
    seconds: float


def run(command, window):
    """Runs a load tool to its end and is what it printed."""
    patience = window.warm_up + window.seconds + 60
    try:
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=patience, check=False)
    except subprocess.TimeoutExpired as error:
        raise Failure(f"{command[0]} still ran after {patience:.0f} s") from error
    if done.returncode != 0:
        raise Failure(f"`{' '.join(map(str, command))}` failed: {done.stderr.strip()[-800:]}")
    return done.stdout


def redis_benchmark(program, port, load, window, pids):
    """Redis's own load generator, which counts requests and not seconds: a first run finds out how many fit."""

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
    command = [program, "-endpoints", ",".join(endpoints), "-clients", load.clients, "-operation", load.operation]
    command += ["-keys", KEYS, "-value-bytes", VALUE_BYTES]
    command += ["-warm-up", f"{window.warm_up}s", "-window", f"{window.seconds}s"]
    for name, pid in pids.items():
        command += ["-pid", f"{name}={pid}"]
    return json.loads(run(command, window))
