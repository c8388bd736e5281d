"""Memory and processor time of a process, from /proc. All figures are 0 on systems without it."""

import os
from pathlib import Path

_KIBIBYTE_MEGABYTES = 1024 / 1e6


def resident_megabytes(pid: int | str = "self") -> float:
    """Resident memory now."""
    return _status(pid, "VmRSS")


def peak_megabytes(pid: int | str = "self") -> float:
    """The largest resident memory so far."""
    return _status(pid, "VmHWM")


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
