"""The forms of query that the dashboards are written in; each heeds the variables `job` and `instance`."""

from __future__ import annotations

_ALL = 'job=~"$job", instance=~"$instance"'


def at(name: str, more: str = "") -> str:
    """The series of a metric that the variables choose."""
    return f"{name}{{{_ALL}{', ' + more if more else ''}}}"


def rate(name: str, by: str = "", more: str = "") -> str:
    """The summed rate of a counter, per second."""
    over = f"rate({at(name, more)}[$__rate_interval])"
    return f"sum by ({by}) ({over})" if by else f"sum({over})"


def quantile(share: float, name: str, by: str = "verb") -> str:
    """A quantile of a histogram."""
    return f"histogram_quantile({share}, {rate(f'{name}_bucket', f'le, {by}')})"


def mean(name: str, by: str = "verb") -> str:
    """The mean of what a histogram has seen."""
    return f"{rate(f'{name}_sum', by)} / {rate(f'{name}_count', by)}"
