"""Where the real programs are, and each of them as a child process: its log, its readiness, its end.

Knows no flag of any program; `control_plane.py` and `serving.py` do. Children are ended by their own handle only.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

from extender.wire.api_server import minor_of

VARIABLE = "KUBE_ASSETS_DIR"
NOT_TRIED = "not tried"
"""Begins the reason of a skipped test that says nothing about a version."""
OLDER = "KUBE_OLDER_ASSETS_DIR"
"""Names a folder with kube-apiserver and kube-scheduler of the minor version before."""
PROGRAMS = ("etcd", "kube-apiserver", "kube-scheduler")
START_PATIENCE = 120.0  # seconds; a shared machine may be slow, but a program that is broken mostly ends at once
_LOOK_EVERY = 0.1
_TAIL = 3000  # characters of a log that a failure shows


class ProgramError(Exception):
    """A program is missing, ended on its own or did not become ready; holds the end of its log."""


def assets_directory() -> Path | None:
    """The directory that the variable names; None where it is not set. ProgramError where a program is missing in it."""
    named = os.environ.get(VARIABLE)
    if not named:
        return None
    missing = [name for name in PROGRAMS if not os.access(Path(named, name), os.X_OK)]
    if missing:
        raise ProgramError(f"{VARIABLE}={named}: no executable {', '.join(missing)}")
    return Path(named).resolve()  # the programs run in folders of their own


@cache
def minor_of_program(path: str) -> int:
    """The minor version of a program of Kubernetes, by its flag --version."""
    said = subprocess.run([path, "--version"], capture_output=True, text=True, check=True).stdout
    minor = minor_of(said.split()[-1])
    if minor is None:
        raise ProgramError(f"{path} --version says {said}")
    return minor


def free_ports(count: int) -> list[int]:
    """Ports of loopback that no process has now; all are held together, so they differ."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]
    finally:
        for each in sockets:
            each.close()


class Program:
    """One child process, which may be started, stopped and started again; its log grows on."""

    def __init__(
        self, name: str, command: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.command = list(command)
        self.log_file = folder / f"{name}.log"
        self._folder = folder
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The running process. ProgramError when there is none."""
        if self._process is None:
            raise ProgramError(f"{self.name} does not run")
        return self._process.pid

    def log(self) -> str:
        """Everything it has written so far."""
        return self.log_file.read_text("utf-8", errors="replace") if self.log_file.exists() else ""

    def start(self, is_ready: Callable[[], object], patience: float = START_PATIENCE) -> None:
        """Start, and return once it is ready. ProgramError when it ends before that, or takes too long."""
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                self.command,
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                cwd=self._folder,
                env=None if self._environment is None else {**os.environ, **self._environment},
                start_new_session=True,  # Ctrl-C is for the tests, which then stop their children in order
            )
        deadline = time.monotonic() + patience
        while not is_ready():
            if self._process.poll() is not None:
                raise ProgramError(f"{self.name} ended with {self._process.returncode}:\n{self.log()[-_TAIL:]}")
            if time.monotonic() > deadline:
                raise ProgramError(f"{self.name} is not ready after {patience:.0f} s:\n{self.log()[-_TAIL:]}")
            time.sleep(_LOOK_EVERY)  # another process has no event to wait on

    def cpu_seconds(self) -> float:
        """Processor time that it has used so far, in user code and in the kernel's. Linux only."""
        fields = Path(f"/proc/{self.pid}/stat").read_text("utf-8").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def send(self, number: signal.Signals) -> None:
        """Send it a signal; SIGSTOP and SIGCONT hold it and let it go on."""
        os.kill(self.pid, number)

    def kill(self) -> None:
        """End it without any chance to put things in order, as a machine that loses its power."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def stop(self, grace: float = 10.0) -> None:
        """End it, by force when it has not ended after the grace; nothing happens when it does not run."""
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGCONT)  # a stopped process would not see the signal that ends it
            process.terminate()
        try:
            process.wait(grace)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def our_command(*arguments: str) -> list[str]:
    """The extender's command line, run by this interpreter."""
    return [sys.executable, "-m", "extender", *arguments]
