"""What is counted for every request, against the metrics of prometheus_client."""

from prometheus_client import CollectorRegistry, Histogram, disable_created_metrics, generate_latest

from extender.telemetry.metric_declaration import Source, histogram
from extender.telemetry.metrics import Metrics
from extender.telemetry.verb_metrics import Distribution

BOUNDS = (0.0001, 0.5, 1, 2, 1024)
VALUES = (0, 0.0001, 0.00011, 0.5, 1, 1.5, 2, 7, 1024, 1025, 3e9)


def test_a_distribution_is_shown_as_a_histogram_of_prometheus_client_shows_it() -> None:
    registry, metrics = CollectorRegistry(), Metrics("1")
    disable_created_metrics()  # type: ignore[no-untyped-call]
    own = Distribution(BOUNDS)
    theirs = Histogram("some", "Some.", ["verb"], buckets=BOUNDS, registry=registry).labels("filter")
    for value in VALUES:
        own.observe(value)
        theirs.observe(value)
    metrics.report(histogram("some{verb}", "Some.", BOUNDS, Source.REQUEST), lambda: {"filter": own})
    assert generate_latest(registry) in metrics.render()


def test_every_answer_is_counted_once_under_its_status() -> None:
    metrics = Metrics("1")
    for status in (200, 503, 200):
        metrics.verbs["filter"].record_answer(status, 0.001, 10, 20)
    page = metrics.render().decode().splitlines()
    assert 'extender_requests_total{code="200",verb="filter"} 2.0' in page
    assert 'extender_requests_total{code="503",verb="filter"} 1.0' in page
    assert 'extender_request_duration_seconds_count{verb="filter"} 3.0' in page
    assert 'extender_request_bytes_sum{verb="filter"} 30.0' in page
    assert 'extender_requests_total{code="200",verb="bind"} 0.0' in page


def test_the_time_of_a_rule_has_the_objective_of_the_kep_as_a_bound() -> None:
    """KEP-3022, "What are the reasonable SLOs": 90 % of ``plugin_execution_duration_seconds`` within 100 ms, by plugin."""
    metrics = Metrics("1")
    for seconds in (0.02, 0.1, 0.2):
        metrics.record_rule("PodTopologySpread", "Filter", seconds)
    page = metrics.render().decode().splitlines()
    name, labels = "extender_plugin_execution_duration_seconds", 'extension_point="Filter"'
    plugin = 'plugin="PodTopologySpread"'
    assert f'{name}_bucket{{{labels},le="0.1",{plugin}}} 2.0' in page
    assert f"{name}_count{{{labels},{plugin}}} 3.0" in page


def test_a_bound_pod_is_shown_with_its_time_and_its_attempts() -> None:
    """KEP-2249, "What are the SLIs": ``pod_scheduling_duration_seconds``."""
    metrics = Metrics("1")
    metrics.record_scheduled(3.0, 2)
    page = metrics.render().decode().splitlines()
    assert "extender_pod_scheduling_duration_seconds_sum 3.0" in page
    assert 'extender_pod_scheduling_attempts_bucket{le="1.0"} 0.0' in page
    assert 'extender_pod_scheduling_attempts_bucket{le="2.0"} 1.0' in page
