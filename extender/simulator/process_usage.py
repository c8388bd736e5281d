"""How much memory a process has in use, and how much processor time it has used, as Linux counts them."""

import os
from pathlib import Path

_KIBIBYTE_MEGABYTES = 1024 / 1e6


def resident_megabytes(pid: int | str = "self") -> float:
    """What is in use now; 0 where the system does not tell."""
    return _status(pid, "VmRSS")


def peak_megabytes(pid: int | str = "self") -> float:
    """The most that has ever been in use; 0 where the system does not tell."""
    return _status(pid, "VmHWM")


def processor_seconds(pid: int | str = "self") -> float:
    """User and system time of a process so far; 0 where the system does not tell."""
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
