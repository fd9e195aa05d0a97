"""What the operating system accounts: CPU time by process and of the whole machine, and what machine this is."""

import os
import platform

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def process_cpu_us(pid):
    """User and system time of a process so far, in microseconds."""
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        # The second field is the program's name in parentheses and may hold spaces.
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * 1e6 / TICKS_PER_SECOND


def machine_cpu_us():
    """Time that all cores have spent on anything but idling and waiting for a disk, in microseconds."""
    with open("/proc/stat", encoding="utf-8") as file:
        user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, file.readline().split()[1:9])
    return (user + nice + system + irq + softirq + steal) * 1e6 / TICKS_PER_SECOND


def load_average():
    """Processes that ran or waited to run, averaged over the last minute."""
    return round(os.getloadavg()[0], 2)


def describe_machine():
    """The machine, for the head of a results file."""
    return {
        "processor": _first("/proc/cpuinfo", "model name"),
        "cores": os.cpu_count(),
        "memory_gib": round(int(_first("/proc/meminfo", "MemTotal").split()[0]) / 1024**2),
        "kernel": f"{platform.system()} {platform.release().split('-')[0]}",
    }


def _first(path, key):
    with open(path, encoding="utf-8") as file:
        for line in file:
            if line.startswith(key):
                return line.partition(":")[2].strip()
    return "unknown"
