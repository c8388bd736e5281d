"""An earlier version of the product, from git: which commit it is, and its files."""

from __future__ import annotations

import io
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]


class NoEarlierVersionError(Exception):
    """Raised where git is missing, or does not have the commit. The text says which."""


def commit_of(named: str = "") -> str:
    """The full name of what is named, else of where this branch left main, else of the commit before this one.

    Where files have changed since the last commit of main, it is that commit. Raises NoEarlierVersionError.
    """
    return _git("rev-parse", "--verify", f"{named or _earlier()}^{{commit}}").decode().strip()


def extract(commit: str, folder: Path) -> None:
    """Writes the files of a commit into a folder. Raises NoEarlierVersionError."""
    with tarfile.open(fileobj=io.BytesIO(_git("archive", commit))) as archive:
        # Python before 3.11.4 has no filters.
        archive.extraction_filter = getattr(tarfile, "data_filter", lambda member, _: member)
        archive.extractall(folder)  # noqa: S202 - the archive is git's own


def _earlier() -> str:
    head = _git("rev-parse", "HEAD").decode().strip()
    known = _git("for-each-ref", "--format=%(refname)", "refs/heads/main", "refs/remotes/origin/main").decode().split()
    base = _git("merge-base", known[0], head).decode().strip() if known else head
    is_changed = bool(_git("status", "--porcelain", "--untracked-files=no", "--", "extender").strip())
    return base if base != head or is_changed else f"{head}~1"


def _git(*arguments: str) -> bytes:
    git = shutil.which("git")
    if git is None:
        raise NoEarlierVersionError("git is not installed")
    done = subprocess.run([git, *arguments], cwd=ROOT, capture_output=True, check=False)
    if done.returncode:
        raise NoEarlierVersionError(f"git {arguments[0]}: {done.stderr.decode().strip()}")
    return done.stdout
