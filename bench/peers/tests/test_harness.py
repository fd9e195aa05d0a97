"""Tests of the harness itself, without any of the systems.

    python3 -m unittest discover -s bench/peers -t bench/peers
"""

import os
import signal
import sys
import tempfile
import time
import unittest
from pathlib import Path
from unittest import mock

from harness import loads, report
from harness.processes import Failure, Servers, free_ports


def figures(per_second, cpu_us):
    """One round of one system."""
    return {
        "per_second": per_second,
        "p50_us": 1e9 / per_second,
        "p99_us": 2e9 / per_second,
        "cpu_us": cpu_us,
        "errors": 0,
        "load_average": 1.0,
        "elsewhere": 0.0,
    }


RESULTS = {
    "scenario": "etcd-disk",
    "title": "Ionian and another",
    "measured": "2026-11-22 04:00 UTC",
    "machine": {"cores": 2, "processor": "P", "memory_gib": 24, "kernel": "Linux"},
    "versions": ["ionian 1", "other 2"],
    "settings": {"rounds": 3, "warm_up_s": 1, "window_s": 2, "value_bytes": 16, "keys": 100_000},
    "rows": [
        {
            "load": "1 client",
            "system": "Ionian",
            "rounds": [
                figures(2_000, {"a": 1, "b": 8}),
                figures(4_000, {"a": 9, "b": 1}),
                figures(3_000, {"a": 7, "b": 1}),
            ],
        },
        {"load": "1 client", "system": "other", "rounds": [figures(1_500, {"leader": 20.0})]},
        {"load": "2 clients", "system": "Ionian", "rounds": [figures(10_000, {"a": 1})]},
    ],
}


class ReportTest(unittest.TestCase):
    def cells(self, row):
        line = report.table(RESULTS).splitlines()[2 + row]
        return dict(zip(report.HEAD, (cell.strip() for cell in line.strip("|").split("|"))))

    def test_figures_are_medians_and_the_busiest_server_comes_first(self):
        cells = self.cells(0)
        self.assertEqual(cells["commands/s"], "3,000")
        self.assertEqual(cells["spread"], "67%")
        self.assertEqual(cells["CPU us a command, by server"], "8.00 + 1.00")
        self.assertEqual(cells["sum"], "9.00")

    def test_a_peer_is_compared_with_ionian_under_the_same_load(self):
        self.assertEqual(self.cells(0)["CPU"], "")
        self.assertEqual(self.cells(1)["ours / theirs: commands/s"], "2.00x")
        self.assertEqual(self.cells(1)["CPU"], "0.45x")
        self.assertEqual(self.cells(2)["CPU"], "")

    def test_errors_and_a_generator_at_its_limit_are_remarked(self):
        bad = {**figures(10_000, {"a": 1}), "errors": 3, "client_limited": True}
        results = {**RESULTS, "rows": [{"load": "1 client", "system": "Ionian", "rounds": [bad, figures(1, {"a": 1})]}]}
        line = report.table(results).splitlines()[2]
        self.assertIn("| 3 errors, the load generator was the limit in 1 of 2 rounds |", line)
        self.assertEqual(self.cells(0)["remarks"], "")

    def test_a_machine_that_was_busy_with_something_else_is_told(self):
        self.assertNotIn("not calm", report.section(RESULTS))
        busy = {**figures(1, {"a": 1}), "elsewhere": 0.42}
        rounds = [figures(1, {"a": 1}), busy]
        results = {**RESULTS, "rows": [{"load": "1 client", "system": "Ionian", "rounds": rounds}]}
        self.assertIn("**The machine was not calm**: in one of the rounds 42% of it", report.section(results))

    def test_the_readme_changes_between_its_markers_only(self):
        class Known:
            key = "etcd-disk"

        with tempfile.TemporaryDirectory() as directory:
            readme = Path(directory, "README.md")
            readme.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n")
            report.store(RESULTS, Path(directory))
            for _ in range(2):
                report.write_readme(readme, Path(directory), [Known])
            text = readme.read_text()
        self.assertTrue(text.startswith(f"before\n{report.BEGIN}\n"))
        self.assertTrue(text.endswith(f"\n{report.END}\nafter\n"))
        self.assertNotIn("old", text)
        self.assertEqual(text.count("Ionian and another"), 1)

    def test_a_readme_without_markers_is_refused(self):
        with tempfile.TemporaryDirectory() as directory:
            readme = Path(directory, "README.md")
            readme.write_text("no markers\n")
            with self.assertRaisesRegex(Failure, "markers"):
                report.write_readme(readme, Path(directory), [])
            self.assertEqual(readme.read_text(), "no markers\n")


class ServersTest(unittest.TestCase):
    def test_ports_are_neighbours_and_in_range(self):
        first = free_ports(6)
        self.assertTrue(20_000 <= first and first + 6 <= 32_000)

    def test_nothing_is_left_after_a_failure(self):
        # A server that does not end when asked, with a child of its own.
        script = "import os, signal, time; signal.signal(15, signal.SIG_IGN); os.fork()"
        script += "; os.write(1, b'up\\n'); time.sleep(99)"
        with (
            mock.patch("harness.processes.STOP_WITHIN_S", 0.1),
            self.assertRaises(ZeroDivisionError),
            Servers("disk") as servers,
        ):
            process = servers.start("stubborn", sys.executable, "-c", script, talk=True)
            self.assertEqual([servers.line(process), servers.line(process)], ["up", "up"])
            raise ZeroDivisionError
        self.assertEqual(process.returncode, -signal.SIGKILL)
        self.assertFalse(servers.directory.exists())
        self.assertTrue(ended(process.pid), "the child lives")

    def test_a_load_that_fails_says_why(self):
        script = "import sys; print(7); sys.exit('refused: ' + sys.argv[1] if sys.argv[1:] else 0)"
        program = [sys.executable, "-c", script]
        self.assertEqual(loads.run(program, loads.Window(0, 1)), "7\n")
        with self.assertRaisesRegex(Failure, "refused: twice"):
            loads.run([*program, "twice"], loads.Window(0, 1))

    def test_a_server_that_ends_early_is_named_with_what_it_said(self):
        with Servers("disk") as servers:
            process = servers.start("broken", sys.executable, "-c", "raise SystemExit('no such disk')")
            with self.assertRaisesRegex(Failure, "broken ended early: no such disk"):
                servers.wait_until(process, lambda: False)


def ended(group):
    """Whether a process group has no member left, which the system may take a moment to see."""
    for _ in range(500):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.01)
    return False


if __name__ == "__main__":
    unittest.main()
