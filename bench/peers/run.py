#!/usr/bin/env python3
"""Runs Ionian and a peer in turn on this machine, and prints what each of them did.

Needs Linux, Python 3.11, Rust's toolchain for Ionian, Go for etcd and dragonboat, and redis-server for Redis."""

import argparse
import json
import signal
import sys
from pathlib import Path

from harness import report
from harness.loads import Window
from harness.processes import Failure
from harness.rounds import Course, compare
from harness.scenarios import SCENARIOS
from harness.tools import HERE, Tools


STOPS = (signal.SIGINT, signal.SIGTERM)


def main():
    arguments = parse()
    for number in STOPS:
        signal.signal(number, interrupt)
    try:
        if arguments.scenario == ["table"]:
            report.write_readme(HERE / "README.md", HERE / "results", SCENARIOS)
            return 0
        return run(arguments)
    except Failure as failure:
        print(f"run.py: {failure}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("run.py: stopped", file=sys.stderr)
        return 130


def interrupt(*_):
    """Ends the run, by Ctrl-C or `kill`. A second signal does not disturb the tidying up, which takes seconds."""
    for number in STOPS:
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def parse():
    keys = [scenario.key for scenario in SCENARIOS]
    epilog = "scenarios:\n" + "\n".join(f"  {scenario.key:<18} {scenario.title}" for scenario in SCENARIOS)
    epilog += "\n\n`run.py all --store` runs every scenario and writes results/ and the README's tables."
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=epilog, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "scenario", nargs="+", choices=[*keys, "all", "table"], metavar="SCENARIO",
        help="which to run, below; all of them; or `table`, which writes stored results into the README",
    )  # fmt: skip
    parser.add_argument("--ionian", metavar="FILE", help="Ionian's binary (default: build this repository's)")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="turns of each system (default: 3)")
    parser.add_argument("--seconds", type=float, default=8, metavar="S", help="measured by each load (default: 8)")
    parser.add_argument("--warm-up", type=float, default=2, metavar="S", help="before that (default: 2)")
    parser.add_argument(
        "--calm", type=float, default=0, metavar="S",
        help="before each turn, wait until nothing else runs on the machine, S seconds at most (default: 0)",
    )  # fmt: skip
    parser.add_argument("--directory", metavar="DIR", help="on the disk to be measured (default: for temporary files)")
    parser.add_argument(
        "--redis-benchmark", action="store_true",
        help="use redis-benchmark, not Ionian's load generator, on Ionian and Redis: a check of the latter",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print results as JSON, not as tables")
    parser.add_argument("--store", action="store_true", help="keep results in results/ and write the README's tables")
    arguments = parser.parse_args()
    if arguments.redis_benchmark and arguments.store:
        parser.error("--store keeps results of Ionian's load generator only, not of --redis-benchmark")
    if "table" in arguments.scenario and len(arguments.scenario) > 1:
        parser.error("`table` stands alone")
    if arguments.rounds < 1 or arguments.seconds <= 0 or arguments.warm_up <= 0 or arguments.calm < 0:
        parser.error("--rounds, --seconds and --warm-up are above 0, and --calm is not below")
    return arguments


def run(arguments):
    tools = Tools(arguments.ionian, arguments.redis_benchmark)
    window = Window(arguments.warm_up, arguments.seconds)
    course = Course(arguments.rounds, window, arguments.directory, arguments.calm)
    for scenario in SCENARIOS:
        if scenario.key not in arguments.scenario and "all" not in arguments.scenario:
            continue
        note(scenario.title)
        results = compare(scenario, tools, course, note)
        if arguments.store:
            report.store(results, HERE / "results")
            report.write_readme(HERE / "README.md", HERE / "results", SCENARIOS)
        print(json.dumps(results, indent=1) if arguments.json else report.section(results))
    return 0


def note(text):
    """A line of progress, which does not mix with results."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    Path(HERE / "built").mkdir(exist_ok=True)
    sys.exit(main())
