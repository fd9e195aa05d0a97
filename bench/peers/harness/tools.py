"""The programs that are run: where they come from and which version they are."""

import os
import shutil
import subprocess
from pathlib import Path

from harness.processes import Failure

HERE = Path(__file__).resolve().parent.parent
ROOT = HERE.parent.parent
BUILT = HERE / "built"
# What Ionian's binary is made of.
SOURCES = ("crates", "Cargo.toml", "Cargo.lock")


class Tools:
    """Finds, or builds on first use, each program."""

    def __init__(self, ionian=None, with_redis_benchmark=False):
        # Whether Redis's own load generator puts the load on what speaks its protocol, and not Ionian's.
        self.with_redis_benchmark = with_redis_benchmark
        self._ionian_is_given = ionian is not None
        self._ionian = Path(ionian).resolve() if ionian else None
        self._go_is_built = False

    def ionian(self):
        """Ionian's own binary: the one given, or one of this repository, built as packages are."""
        if self._ionian is None:
            # `ionian bench` starts the second one, beside the first.
            _build(["cargo", "build", "--profile", "dist", "--package", "ionian-cli", "--package", "ionian-tools"], ROOT)
            target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
            self._ionian = target / "dist" / "ionian"
        if not self._ionian.is_file():
            raise Failure(f"there is no {self._ionian}")
        return self._ionian

    def go(self, name):
        """etcd, or a program of the Go module beside this script, built from the Go module proxy."""
        if not self._go_is_built:
            programs = ["go.etcd.io/etcd/server/v3", "./etcdload", "./dragonboat"]
            _build(["go", "build", "-o", f"{BUILT}/", *programs], HERE / "go")
            # Go names a binary after the last part of the import path that is not a version.
            (BUILT / "server").replace(BUILT / "etcd")
            self._go_is_built = True
        return BUILT / name

    def installed(self, name):
        """A program of the operating system's packages."""
        path = shutil.which(name)
        if path is None:
            raise Failure(f"{name} is not installed; on Debian: apt-get install redis-server")
        return Path(path)

    def version(self, system):
        """The version of one of the systems, in words."""
        if system == "ionian":
            version = _output([self.ionian(), "--version"])
            if self._ionian_is_given:
                return f"{version} (a binary that was given)"
            commit = _output(["git", "log", "-1", "--abbrev=10", "--format=%h", "--", *SOURCES], ROOT)
            changed = _output(["git", "status", "--porcelain", "--", *SOURCES], ROOT)
            return f"{version}, commit {commit}{' with changes' if changed else ''}"
        if system == "redis":
            return _output([self.installed("redis-server"), "--version"]).split(" sha=")[0]
        module = {"etcd": "go.etcd.io/etcd/server/v3", "dragonboat": "github.com/lni/dragonboat/v4"}[system]
        module_version = _output(["go", "list", "-m", "-f", "{{.Version}}", module], HERE / "go")
        return f"{system} {module_version}, {_output(['go', 'env', 'GOVERSION'], HERE / 'go')}"


def _build(command, directory):
    try:
        subprocess.run(command, cwd=directory, check=True, stdout=subprocess.DEVNULL)
    except FileNotFoundError as error:
        raise Failure(f"{command[0]} is not installed") from error
    except subprocess.CalledProcessError as error:
        raise Failure(f"`{' '.join(map(str, command))}` failed in {directory}") from error


def _output(command, directory=None):
    return subprocess.run(command, cwd=directory, check=True, capture_output=True, text=True).stdout.strip()
