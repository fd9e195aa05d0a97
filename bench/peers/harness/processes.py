"""Server processes: started on free ports in a directory of their own, and stopped whatever happens."""

import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

READY_WITHIN_S = 40
STOP_WITHIN_S = 10


class Failure(Exception):
    """A job that could not be done; the text says why."""


def free_ports(count):
    """The first of `count` neighbouring ports of 127.0.0.1 that no process listens on, below those given to clients."""
    for _ in range(100):
        first = random.randrange(20_000, 32_000 - count)
        try:
            for port in range(first, first + count):
                with socket.socket() as attempt:
                    attempt.bind(("127.0.0.1", port))
            return first
        except OSError:
            continue
    raise Failure(f"no {count} neighbouring ports are free between 20000 and 32000")


class Servers:
    """The processes of one system and their directory; a context manager that leaves neither behind."""

    def __init__(self, durability, directory=None):
        # Where nothing must survive, nothing needs to reach a disk: not even the write-back of the page cache.
        memory = Path("/dev/shm")
        if durability == "memory" and os.access(memory, os.W_OK):
            directory = memory
        self.directory = Path(tempfile.mkdtemp(prefix="ionian-peers-", dir=directory))
        self.processes = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        stop(self.processes)
        shutil.rmtree(self.directory, ignore_errors=True)

    def start(self, name, *arguments, talk=False):
        """Starts a process whose complaints go to a file; with `talk`, its standard input and output are pipes.

        It gets a process group of its own: Ctrl-C ends this script, which then ends the processes in order."""
        with open(self.directory / f"{name}.log", "wb") as log:
            pipe = subprocess.PIPE if talk else None
            process = subprocess.Popen(
                [str(argument) for argument in arguments],
                stdin=pipe or subprocess.DEVNULL,
                stdout=pipe or log,
                stderr=log,
                text=True,
                cwd=self.directory,
                start_new_session=True,
            )
        process.label = name
        self.processes.append(process)
        return process

    def line(self, process):
        """The next line that a process started with `talk` prints."""
        line = process.stdout.readline()
        if not line:
            raise Failure(f"{process.label} ended early: {self.complaint(process)}")
        return line.strip()

    def wait_until(self, process, is_ready):
        """Waits until `is_ready()`, which fails loudly when the process has ended or takes too long."""
        deadline = time.monotonic() + READY_WITHIN_S
        while not is_ready():
            if process.poll() is not None:
                raise Failure(f"{process.label} ended early: {self.complaint(process)}")
            if time.monotonic() > deadline:
                raise Failure(f"{process.label} is not ready after {READY_WITHIN_S} s: {self.complaint(process)}")
            time.sleep(0.05)

    def log(self, process):
        """All that a process has written to its file."""
        return (self.directory / f"{process.label}.log").read_text(encoding="utf-8", errors="replace")

    def complaint(self, process):
        """The last lines that a process has written to its file."""
        return self.log(process)[-800:].strip() or "it said nothing"


def stop(processes):
    """Ends processes that lead a group each, with everything in their groups."""
    for process in reversed(processes):
        _signal(process, signal.SIGTERM)
    deadline = time.monotonic() + STOP_WITHIN_S
    for process in processes:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            pass
        # Also when the process itself has ended: those that it started are in its group.
        _signal(process, signal.SIGKILL)
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe:
                pipe.close()


def accepts(port):
    """Whether a process listens on a port."""
    with socket.socket() as attempt:
        return attempt.connect_ex(("127.0.0.1", port)) == 0


def _signal(process, number):
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        pass
