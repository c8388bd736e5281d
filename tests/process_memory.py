"""Memory and processor time of a process, from /proc; 0 on systems without it."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

_KIBIBYTE_MEGABYTES: Final = 1024 / 1e6


def resident_megabytes(pid: int | str = "self") -> float:
    """Resident memory now."""
    return _status(pid, "VmRSS")


def peak_megabytes(pid: int | str = "self") -> float:
    """The largest resident memory so far."""
    return _status(pid, "VmHWM")


def reset_peak(pid: int | str = "self") -> None:
    """From now on `peak_megabytes` counts from the present resident memory (proc_pid_clear_refs(5))."""
    with suppress(OSError):
        Path(f"/proc/{pid}/clear_refs").write_text("5", "ascii")


def processor_seconds(pid: int | str = "self") -> float:
    """User and system time so far."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _status(pid: int | str, name: str) -> float:
    try:
        lines = Path(f"/proc/{pid}/status").read_text("ascii").splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) * _KIBIBYTE_MEGABYTES for line in lines if line.startswith(name)), 0.0)
