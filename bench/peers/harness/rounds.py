"""Rounds: each starts every system in turn, ours, theirs, ours, theirs, so that what drifts drifts for all."""

import dataclasses
import datetime
import os
import resource
import time

from harness import accounting
from harness.loads import KEYS, VALUE_BYTES, Window
from harness.processes import Servers


# Below this share of the machine, what else runs is taken for the system's own housekeeping.
CALM = 0.05


@dataclasses.dataclass(frozen=True)
class Course:
    """How often everything is measured and how long, where files go, and how patiently a calm machine is awaited."""

    rounds: int
    window: Window
    directory: str | None
    calm_within_s: float


def compare(scenario, tools, course, progress):
    """Runs a scenario and is its results, as they are stored."""
    rounds, window = course.rounds, course.window
    systems = [make(tools) for make in scenario.systems]
    rows = {(number, load): [] for number in range(len(systems)) for load in scenario.loads}
    for turn in range(1, rounds + 1):
        for number, make in enumerate(scenario.systems):
            system = make(tools)
            _await_calm(course.calm_within_s, progress)
            with Servers(system.durability, course.directory) as servers:
                system.serve(servers)
                for load in scenario.loads:
                    figures = _observed(system, load, window)
                    rows[number, load].append(figures)
                    progress(f"round {turn}/{rounds}  {system.name()}, {load.words()}: {_line(figures)}")
    return {
        "scenario": scenario.key,
        "title": scenario.title,
        "measured": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "machine": accounting.describe_machine(),
        "versions": [tools.version(product) for product in dict.fromkeys(system.product for system in systems)],
        "settings": {
            "rounds": rounds,
            "warm_up_s": window.warm_up,
            "window_s": window.seconds,
            "value_bytes": VALUE_BYTES,
            "keys": KEYS,
        },
        "rows": [
            {"load": load.words(), "system": systems[number].name(), "rounds": rows[number, load]}
            for load in scenario.loads
            for number in range(len(systems))
        ],
    }


def _await_calm(within_s, progress):
    """Waits until next to nothing runs on this machine for a second, or goes on when it takes too long."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        began, before = time.monotonic(), accounting.machine_cpu_us()
        time.sleep(1)
        busy = accounting.machine_cpu_us() - before
        if busy < CALM * (time.monotonic() - began) * 1e6 * os.cpu_count():
            return
    if within_s:
        progress(f"the machine has not been calm for {within_s:g} s: going on")


def _observed(system, load, window):
    """One measurement, with the load average before it and how busy the machine was with something else."""
    average = accounting.load_average()
    began, before = time.monotonic(), _cpu_us(system.pids.values())
    figures = system.measure(load, window)
    seconds, after = time.monotonic() - began, _cpu_us(system.pids.values())
    machine, ours = (now - then for now, then in zip(after, before))
    figures["load_average"] = average
    figures["elsewhere"] = round(max(0.0, machine - ours) / (seconds * 1e6 * os.cpu_count()), 3)
    return figures


def _cpu_us(pids):
    """CPU time so far of the whole machine, and of the servers, the load tools that have ended and this script."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    tools = sum(usage.ru_utime + usage.ru_stime for usage in usages) * 1e6
    return accounting.machine_cpu_us(), tools + sum(accounting.process_cpu_us(pid) for pid in pids)


def _line(figures):
    return (
        f"{figures['per_second']:,.0f}/s, p50 {figures['p50_us'] / 1e3:.2f} ms, "
        f"servers {sum(figures['cpu_us'].values()):.1f} us a command"
    )
