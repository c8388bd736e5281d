"""The metrics page: what is on it, and where the figures come from."""

import re
import time
from pathlib import Path

import pytest

from extender.telemetry import catalogue
from extender.telemetry.catalogue import METRICS
from extender.telemetry.metric_declaration import MetricKind, Source
from extender.telemetry.metrics import Metrics
from extender.telemetry.verb_metrics import Distribution

PACKAGE = Path(__file__).resolve().parents[2] / "extender"


def full_page() -> str:
    """A page on which everything that can be reported stands."""
    metrics = Metrics("1.2.3")
    metrics.report(catalogue.INDEX_ENTRIES, lambda: {"pods": 3})
    metrics.report(catalogue.READY, lambda: {"pods": 1})
    metrics.report(catalogue.WATCH_EVENTS, lambda: {"pods": 7})
    metrics.report(catalogue.WATCH_BYTES, lambda: {"pods": 4096})
    metrics.report(catalogue.RELISTS, lambda: {"pods": 1})
    metrics.report(catalogue.DECODE_ERRORS, lambda: {"pods": 0})
    metrics.report(catalogue.UNREADABLE_OBJECTS, lambda: {"pods": 3})
    metrics.report(catalogue.WATCH_RESTARTS, lambda: {("pods", "expired"): 2})
    metrics.report(catalogue.CACHE_LAG, lambda: {"pods": 1.5})
    metrics.report(catalogue.REQUESTS_IN_FLIGHT, lambda: 2)
    metrics.report(catalogue.TASK_RESTARTS, lambda: {"reflector pods": 4})
    metrics.report(catalogue.REJECTION_CACHE_HITS, lambda: 5)
    metrics.report(catalogue.REJECTION_CACHE_BYTES, lambda: 600)
    metrics.record_fallback("filter", "stale", "pass")
    metrics.report(catalogue.LEADER, lambda: True)
    metrics.report(catalogue.LEADER_TERMS, lambda: 14)
    metrics.report(catalogue.LEADER_GAP, lambda: 4.1)
    metrics.report(catalogue.CERTIFICATE_EXPIRY, lambda: {"server": 1.8e9})
    metrics.report(catalogue.CERTIFICATE_RELOADS, lambda: {"failed": 1})
    metrics.report(catalogue.CERTIFICATE_FILES_UNUSABLE, lambda: {"expired": 1})
    metrics.report(catalogue.RELIST_CHANGES, lambda: {"pods": 8})
    metrics.report(catalogue.ASSUMED_PODS, lambda: {"known": 9})
    metrics.report(catalogue.SCHEDULER_DECISIONS, lambda: {("default-scheduler", "passed"): 11})
    metrics.report(catalogue.ASSUMED_PODS_FORGOTTEN, lambda: {"expired": 10})
    metrics.report(catalogue.ASSUMED_POD_WAITS, lambda: 11)
    metrics.report(catalogue.ASSUMED_POD_WAIT_TIMEOUTS, lambda: 12)
    metrics.report(catalogue.REJECTED_POD_ACTIONS, lambda: {("requeue", "done"): 13})
    metrics.report(catalogue.CONFIG, lambda: {("offload", "decisive"): 1})
    metrics.record_write("nominate", "conflict", 0.5)
    metrics.verbs["filter"].record_request(5)
    metrics.verbs["filter"].record_request(5, by_names=False)
    metrics.verbs["filter"].record_answer(200, 0.003, 7000, 300)
    metrics.verbs["filter"].record_failure("malformed")
    metrics.record_rejections(["anti_affinity"])
    return metrics.render().decode()


def test_every_metric_has_the_prefix_a_sentence_of_help_and_bounded_labels() -> None:
    assert [metric.name for metric in METRICS if not metric.name.startswith("extender_")] == []
    assert [metric.name for metric in METRICS if not metric.text.endswith(".")] == []
    labels = {label for metric in METRICS for label in metric.labels}
    assert labels.isdisjoint({"pod", "uid", "node"})
    by_namespace = [metric for metric in METRICS if "namespace" in metric.labels]
    bounded = re.compile("10 namespaces|100 workloads")
    assert [metric.name for metric in by_namespace if not bounded.search(metric.text)] == []


def test_a_counter_has_the_suffix_and_a_histogram_buckets_in_order() -> None:
    counters = {metric for metric in METRICS if metric.kind is MetricKind.COUNTER}
    assert counters == {metric for metric in METRICS if metric.name.endswith("_total")}
    histograms = {metric for metric in METRICS if metric.kind is MetricKind.HISTOGRAM}
    assert histograms == {metric for metric in METRICS if metric.buckets}
    assert [metric.name for metric in METRICS if metric.buckets != tuple(sorted(set(metric.buckets)))] == []


def test_no_metric_is_declared_twice() -> None:
    assert len({metric.name for metric in METRICS}) == len(METRICS) > 100


def test_each_source_reports_its_metrics_and_no_others() -> None:
    """What requests and actions count, `telemetry` itself reports; a state, the set-up of the part that has it."""
    metrics = Metrics("1")
    for recorder in (metrics.admission, metrics.preemption, metrics.release):
        recorder()
    reported = set(re.findall(r"^# HELP (extender_\S+)", metrics.render().decode(), re.MULTILINE))
    assert reported == {metric.name for metric in METRICS if metric.source is not Source.STATE} | {catalogue.BUILD.name}


def test_the_set_up_of_the_service_reports_each_state() -> None:
    """By the source text: no set-up of one service has every part."""
    texts = [path.read_text("utf-8") for path in PACKAGE.rglob("*.py") if path.parent.name != "telemetry"]
    named = set(re.findall(r"\bcatalogue\.([A-Z_]+)\b", "".join(texts)))
    states = {name for name, value in vars(catalogue).items() if getattr(value, "source", None) is Source.STATE}
    assert named == states - {"BUILD"}


def test_what_is_read_has_a_value_for_each_label_and_is_of_the_kind() -> None:
    metrics = Metrics("1")
    metrics.report(catalogue.ASSUMED_PODS, lambda: {("known", "extra"): 1})
    with pytest.raises(ValueError, match=r"extender_assumed_pods\{state\}: got \('known', 'extra'\)"):
        metrics.render()
    metrics = Metrics("1")
    metrics.report(catalogue.LEADER, lambda: Distribution((1, 2)))
    with pytest.raises(TypeError, match="got Distribution"):
        metrics.render()


def test_no_second_series_tells_when_a_counter_was_made() -> None:
    assert "_created" not in full_page()


def test_the_duration_buckets_reach_from_a_tenth_of_a_millisecond_past_a_second() -> None:
    bounds = re.findall(r'extender_request_duration_seconds_bucket\{le="([^"]+)",verb="filter"\}', full_page())
    assert (float(bounds[0]), float(bounds[-2]), bounds[-1]) == (0.0001, 1.6384, "+Inf")


def test_the_build_is_reported() -> None:
    assert 'extender_build_info{python_version="3.' in full_page()
    assert 'version="1.2.3"} 1.0' in full_page()


@pytest.mark.parametrize(
    "line",
    [
        'extender_index_entries{kind="pods"} 3.0',
        'extender_ready{check="pods"} 1.0',
        'extender_cache_lag_seconds{resource="pods"} 1.5',
        'extender_watch_events_total{resource="pods"} 7.0',
        'extender_watch_bytes_total{resource="pods"} 4096.0',
        'extender_relists_total{resource="pods"} 1.0',
        'extender_decode_errors_total{resource="pods"} 0.0',
        'extender_unreadable_objects{resource="pods"} 3.0',
        'extender_watch_restarts_total{reason="expired",resource="pods"} 2.0',
        "extender_requests_in_flight 2.0",
        'extender_certificate_expiry_timestamp_seconds{name="server"} 1.8e+09',
        "extender_leader 1.0",
        "extender_leader_terms_total 14.0",
        'extender_fallbacks_total{answer="pass",reason="stale",verb="filter"} 1.0',
        'extender_certificate_reloads_total{result="failed"} 1.0',
        'extender_certificate_files_unusable{cause="expired"} 1.0',
        'extender_task_restarts_total{task="reflector pods"} 4.0',
        "extender_rejection_cache_hits_total 5.0",
        "extender_rejection_cache_bytes 600.0",
        'extender_request_failures_total{reason="malformed",verb="filter"} 1.0',
        'extender_request_bytes_sum{verb="filter"} 7000.0',
        'extender_response_bytes_sum{verb="filter"} 300.0',
        'extender_filter_rejections_total{reason="anti_affinity"} 1.0',
        'extender_relist_changes_total{resource="pods"} 8.0',
        'extender_assumed_pods{state="known"} 9.0',
        'extender_scheduler_decisions_total{result="passed",scheduler="default-scheduler"} 11.0',
        'extender_assumed_pods_forgotten_total{reason="expired"} 10.0',
        "extender_assumed_pod_waits_total 11.0",
        "extender_assumed_pod_wait_timeouts_total 12.0",
        'extender_rejected_pod_actions_total{action="requeue",result="done"} 13.0',
        'extender_config_info{mode="offload",placement="decisive"} 1.0',
        'extender_api_write_duration_seconds_sum{call="nominate",result="conflict"} 0.5',
        'extender_requests_by_form_total{form="names",verb="filter"} 1.0',
        'extender_requests_by_form_total{form="nodes",verb="filter"} 1.0',
        'extender_last_request_timestamp_seconds{verb="prioritize"} 0.0',
        'extender_last_decision_timestamp_seconds{verb="prioritize"} 0.0',
    ],
)
def test_a_figure_that_was_reported_stands_on_the_page(line: str) -> None:
    assert line in full_page().splitlines()


def test_the_time_of_the_last_answer_is_reported() -> None:
    found = re.search(r'extender_last_request_timestamp_seconds\{verb="filter"\} (\S+)', full_page())
    assert found
    assert abs(time.time() - float(found[1])) < 3600


def test_figures_are_read_at_each_scrape() -> None:
    metrics, entries = Metrics("1.2.3"), {"pods": 1}
    metrics.report(catalogue.INDEX_ENTRIES, lambda: entries)
    metrics.render()
    entries["pods"] = 2
    assert b'extender_index_entries{kind="pods"} 2.0' in metrics.render()


def test_two_services_in_one_process_count_apart() -> None:
    one, other = Metrics("1"), Metrics("1")
    one.verbs["filter"].record_answer(200, 0.1, 1, 1)
    assert b'extender_requests_total{code="200",verb="filter"} 0.0' in other.render()
