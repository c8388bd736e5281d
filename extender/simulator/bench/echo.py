"""The echo: what answering costs without deciding. It decodes the same request and names as many nodes. Pure.

In process the players call it; over HTTP the command line puts it behind the same server as the real decisions.
"""

from collections.abc import Mapping

from extender.wire.extender_v1 import ExtenderArgs, FilterResult


def echo_filter(args: ExtenderArgs, count: int | None) -> FilterResult:
    """The first so many of the asked names, or all of them."""
    return FilterResult((args.node_names or [])[:count])


def echo_scores(args: ExtenderArgs, count: int | None) -> Mapping[str, int]:
    """A score for so many of the asked names, or for all."""
    return dict.fromkeys((args.node_names or [])[:count], 0)
