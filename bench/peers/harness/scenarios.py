"""What is compared with what."""

import dataclasses

from harness.loads import InFlight, Load
from harness.systems import Dragonboat, Etcd, Ionian, IonianLanes, Redis


@dataclasses.dataclass(frozen=True)
class Scenario:
    """Systems under the same loads. The first of them is Ionian, and the others are compared with it."""

    key: str
    title: str
    systems: tuple
    loads: tuple


ONE_AT_A_TIME = (Load(1), Load(16), Load(64))
READS = (Load(64, operation="read"), Load(64, operation="stale read"))
IN_FLIGHT = (InFlight(1), InFlight(128), InFlight(1024))
PIPELINED = (Load(1), Load(64), Load(64, pipeline=16))

SCENARIOS = (
    Scenario(
        "etcd-memory",
        "Three nodes, in memory: Ionian and etcd without fsync",
        (lambda tools: Ionian(tools, "memory"), lambda tools: Etcd(tools, "memory")),
        ONE_AT_A_TIME,
    ),
    Scenario(
        "etcd-disk",
        "Three nodes, on disk: Ionian and etcd",
        (lambda tools: Ionian(tools, "disk"), lambda tools: Etcd(tools, "disk")),
        ONE_AT_A_TIME,
    ),
    Scenario(
        "etcd-reads",
        "Three nodes, on disk, reads: Ionian and etcd",
        (lambda tools: Ionian(tools, "disk"), lambda tools: Etcd(tools, "disk")),
        READS,
    ),
    Scenario(
        "redis-memory",
        "Ionian on three nodes in memory, Redis on one server that stores nothing",
        (lambda tools: Ionian(tools, "memory"), lambda tools: Redis(tools, "memory")),
        PIPELINED,
    ),
    Scenario(
        "redis-disk",
        "Ionian on three nodes on disk, Redis on one server with appendfsync always",
        (lambda tools: Ionian(tools, "disk"), lambda tools: Redis(tools, "disk")),
        PIPELINED,
    ),
    Scenario(
        "dragonboat-disk",
        "Three processes on disk, clients in the one that leads: Ionian's lanes and dragonboat",
        (
            lambda tools: IonianLanes(tools, "disk"),
            lambda tools: Dragonboat(tools, "disk", "pipeline"),
            lambda tools: Dragonboat(tools, "disk", "goroutines"),
        ),
        IN_FLIGHT,
    ),
    Scenario(
        "dragonboat-memory",
        "Three processes in memory, clients in the one that leads: Ionian's lanes and dragonboat",
        (
            lambda tools: IonianLanes(tools, "memory"),
            lambda tools: Dragonboat(tools, "memory", "pipeline"),
            lambda tools: Dragonboat(tools, "memory", "goroutines"),
        ),
        IN_FLIGHT,
    ),
)
