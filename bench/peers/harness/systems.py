"""The systems that are compared: how each is started and how a load is put on it."""

import json

from harness import loads
from harness.loads import KEYS, VALUE_BYTES
from harness.processes import Failure, Servers, accepts, free_ports

NODES = 3


class System:
    """One system at one durability. `serve` starts it in a group of servers; `measure` then puts loads on it."""

    # What Tools.version knows it by.
    product = ""

    def __init__(self, tools, durability):
        self.tools = tools
        self.durability = durability
        self.pids = {}

    def name(self):
        """The system, for a table."""
        raise NotImplementedError

    def serve(self, servers: Servers):
        """Starts it and returns when it serves clients."""
        raise NotImplementedError

    def measure(self, load, window):
        """Runs a load and is its figures."""
        raise NotImplementedError


class Ionian(System):
    """Three nodes of the preset `colocated`, and Redis clients at the node that leads."""

    product = "ionian"
    port = 0

    def name(self):
        return f"Ionian, {self.durability}"

    def serve(self, servers):
        program = self.tools.ionian()
        first = free_ports(2 * NODES)
        data = servers.directory / "data"
        up = servers.start(
            "up", program, "up", "--preset", "colocated", "--durability", self.durability, "--data", data,
            "--listen", f"127.0.0.1:{first}", "--node-port", first + NODES,
        )  # fmt: skip
        servers.wait_until(up, lambda: "\nready" in "\n" + servers.log(up))
        self.pids = {file.stem: int(file.read_text()) for file in sorted((data / "run").glob("*.pid"))}
        status = json.loads(loads.run([program, "status", "--data", data, "--json"], loads.Window(0, 0)))
        self.port = next(int(node["gateway"].rpartition(":")[2]) for node in status["nodes"] if _leads(node))

    def measure(self, load, window):
        return _redis_load(self, load, window)


class IonianLanes(System):
    """Three nodes of the preset `colocated`, one of which is the load generator itself."""

    product = "ionian"
    directory = None

    def name(self):
        return f"Ionian's lanes, {self.durability}"

    def serve(self, servers):
        self.directory = servers.directory

    def measure(self, load, window):
        return loads.ionian_lanes(self.tools.ionian(), self.durability, self.directory, load, window)


def _redis_load(system, load, window):
    if system.tools.with_redis_benchmark:
        program = system.tools.installed("redis-benchmark")
        return loads.redis_benchmark(program, system.port, load, window, system.pids)
    return loads.ionian(system.tools.ionian(), system.port, load, window, system.pids)


def _leads(node):
    return any(role["role"] == "leader" and role["leads"]["own"] for role in node["status"]["roles"])


class Etcd(System):
    """Three members of etcd, with its clients' connection at the one that leads."""

    product = "etcd"
    endpoints = ()

    def name(self):
        return "etcd, fsync" if self.durability == "disk" else "etcd, --unsafe-no-fsync"

    def serve(self, servers):
        first = free_ports(2 * NODES)
        members = [f"e{number}" for number in range(NODES)]
        peers = [f"http://127.0.0.1:{first + NODES + number}" for number in range(NODES)]
        self.endpoints = [f"127.0.0.1:{first + number}" for number in range(NODES)]
        cluster = ",".join(f"{name}={peer}" for name, peer in zip(members, peers))
        extra = ["--unsafe-no-fsync"] if self.durability == "memory" else []
        for name, peer, endpoint in zip(members, peers, self.endpoints):
            client = f"http://{endpoint}"
            process = servers.start(
                name, self.tools.go("etcd"), "--name", name, "--data-dir", servers.directory / name,
                "--listen-client-urls", client, "--advertise-client-urls", client,
                "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
                "--initial-cluster", cluster, "--initial-cluster-state", "new",
                "--log-level", "error", "--quota-backend-bytes", 8 * 1024**3, *extra,
            )  # fmt: skip
            self.pids[name] = process.pid
        for process, endpoint in zip(servers.processes, self.endpoints):
            port = int(endpoint.rpartition(":")[2])
            servers.wait_until(process, lambda port=port: accepts(port))

    def measure(self, load, window):
        return loads.etcd(self.tools.go("etcdload"), self.endpoints, load, window, self.pids)


class Redis(System):
    """One server of Redis: nothing is replicated."""

    product = "redis"
    port = 0

    def name(self):
        return "Redis, one server, appendfsync always" if self.durability == "disk" else "Redis, one server, memory"

    def serve(self, servers):
        self.port = free_ports(1)
        durable = ["--appendonly", "no"]
        if self.durability == "disk":
            durable = ["--appendonly", "yes", "--appendfsync", "always"]
        process = servers.start(
            "redis", self.tools.installed("redis-server"), "--port", self.port, "--bind", "127.0.0.1",
            "--dir", servers.directory, "--save", "", *durable,
        )  # fmt: skip
        servers.wait_until(process, lambda: accepts(self.port))
        self.pids = {"redis": process.pid}

    def measure(self, load, window):
        return _redis_load(self, load, window)


class Dragonboat(System):
    """Three processes with the dragonboat library; the clients live in the one that leads."""

    product = "dragonboat"

    def __init__(self, tools, durability, client):
        super().__init__(tools, durability)
        self.client = client
        self._servers = None
        self._leader = None

    def name(self):
        style = {"goroutines": "a goroutine for each command", "pipeline": "one pipelining goroutine"}[self.client]
        return f"dragonboat, {self.durability}, {style}"

    def serve(self, servers):
        program = self.tools.go("dragonboat")
        first = free_ports(NODES)
        addresses = ",".join(f"127.0.0.1:{first + number}" for number in range(NODES))

        def replica(number, *extra):
            common = ["-replica", number, "-addresses", addresses, "-data", servers.directory / str(number)]
            return servers.start(f"replica-{number}", program, *common, *extra, talk=True)

        followers = {f"follower-{number}": replica(number).pid for number in range(2, NODES + 1)}
        watched = [word for name, pid in followers.items() for word in ("-pid", f"{name}={pid}")]
        sizes = ["-keys", KEYS, "-value-bytes", VALUE_BYTES]
        self._servers = servers
        self._leader = replica(1, "-client", self.client, *sizes, *watched)
        self.pids = {"leader": self._leader.pid, **followers}
        if servers.line(self._leader) != "ready":
            raise Failure("replica-1 did not say that it is ready")

    def measure(self, load, window):
        in_flight = load.clients * load.pipeline
        self._leader.stdin.write(f"{in_flight} {window.warm_up}s {window.seconds}s\n")
        self._leader.stdin.flush()
        return json.loads(self._servers.line(self._leader))
