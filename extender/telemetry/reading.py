"""Parses a metrics page, for `doctor`, which examines a running service from outside."""

from collections.abc import Iterator, Mapping

from prometheus_client.parser import text_string_to_metric_families


def read_page(text: str) -> Iterator[tuple[str, Mapping[str, str], float]]:
    """(name, labels, value) of every series. Raises ValueError if the text is not in the Prometheus format."""
    for family in text_string_to_metric_families(text):
        yield from ((sample.name, sample.labels, sample.value) for sample in family.samples)
