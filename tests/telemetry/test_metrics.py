"""The metrics page: what is on it, and where the figures come from."""

import re
import time
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Histogram, disable_created_metrics, generate_latest

from extender.telemetry import catalogue
from extender.telemetry.catalogue import METRICS
from extender.telemetry.metric_declaration import MetricDeclaration, MetricKind, Source, histogram
from extender.telemetry.metrics import PREEMPTION_RESULTS, Metrics
from extender.telemetry.verb_metrics import Distribution

PACKAGE = Path(__file__).resolve().parents[2] / "extender"


def lines_of(metrics: Metrics) -> set[str]:
    return set(metrics.render().decode().splitlines())


STATES: list[tuple[MetricDeclaration, object, str]] = [
    (catalogue.INDEX_ENTRIES, {"pods": 3}, 'extender_index_entries{kind="pods"} 3.0'),
    (catalogue.READY, {"pods": 1}, 'extender_ready{check="pods"} 1.0'),
    (catalogue.WATCH_EVENTS, {"pods": 7}, 'extender_watch_events_total{resource="pods"} 7.0'),
    (catalogue.WATCH_BYTES, {"pods": 4096}, 'extender_watch_bytes_total{resource="pods"} 4096.0'),
    (catalogue.RELISTS, {"pods": 1}, 'extender_relists_total{resource="pods"} 1.0'),
    (catalogue.DECODE_ERRORS, {"pods": 0}, 'extender_decode_errors_total{resource="pods"} 0.0'),
    (catalogue.UNREADABLE_OBJECTS, {"pods": 3}, 'extender_unreadable_objects{resource="pods"} 3.0'),
    (
        catalogue.WATCH_RESTARTS,
        {("pods", "expired"): 2},
        'extender_watch_restarts_total{reason="expired",resource="pods"} 2.0',
    ),
    (catalogue.CACHE_LAG, {"pods": 1.5}, 'extender_cache_lag_seconds{resource="pods"} 1.5'),
    (catalogue.REQUESTS_IN_FLIGHT, 2, "extender_requests_in_flight 2.0"),
    (catalogue.TASK_RESTARTS, {"reflector pods": 4}, 'extender_task_restarts_total{task="reflector pods"} 4.0'),
    (catalogue.PREEMPTIONS, {"stuck": 1}, 'extender_preemptions{phase="stuck"} 1.0'),
    (catalogue.REJECTION_CACHE_HITS, 5, "extender_rejection_cache_hits_total 5.0"),
    (catalogue.REJECTION_CACHE_BYTES, 600, "extender_rejection_cache_bytes 600.0"),
    (catalogue.LEADER, True, "extender_leader 1.0"),
    (catalogue.LEADER_TERMS, 14, "extender_leader_terms_total 14.0"),
    (catalogue.LEADER_GAP, 4.1, "extender_leader_gap_seconds 4.1"),
    (
        catalogue.CERTIFICATE_EXPIRY,
        {"server": 1.8e9},
        'extender_certificate_expiry_timestamp_seconds{name="server"} 1.8e+09',
    ),
    (catalogue.CERTIFICATE_RELOADS, {"failed": 1}, 'extender_certificate_reloads_total{result="failed"} 1.0'),
    (catalogue.CERTIFICATE_FILES_UNUSABLE, {"expired": 1}, 'extender_certificate_files_unusable{cause="expired"} 1.0'),
    (catalogue.RELIST_CHANGES, {"pods": 8}, 'extender_relist_changes_total{resource="pods"} 8.0'),
    (catalogue.ASSUMED_PODS, {"known": 9}, 'extender_assumed_pods{state="known"} 9.0'),
    (
        catalogue.SCHEDULER_DECISIONS,
        {("default-scheduler", "passed"): 11},
        'extender_scheduler_decisions_total{result="passed",scheduler="default-scheduler"} 11.0',
    ),
    (catalogue.ASSUMED_PODS_FORGOTTEN, {"expired": 10}, 'extender_assumed_pods_forgotten_total{reason="expired"} 10.0'),
    (catalogue.ASSUMED_POD_WAITS, 11, "extender_assumed_pod_waits_total 11.0"),
    (catalogue.ASSUMED_POD_WAIT_TIMEOUTS, 12, "extender_assumed_pod_wait_timeouts_total 12.0"),
    (
        catalogue.REJECTED_POD_ACTIONS,
        {("requeue", "done"): 13},
        'extender_rejected_pod_actions_total{action="requeue",result="done"} 13.0',
    ),
    (catalogue.CONFIG, {("offload", "decisive"): 1}, 'extender_config_info{mode="offload",placement="decisive"} 1.0'),
]


@pytest.mark.parametrize(("metric", "value", "line"), STATES)
def test_a_state_is_read_for_the_page(metric: MetricDeclaration, value: object, line: str) -> None:
    metrics = Metrics("1.2.3")
    read: Any = value
    metrics.report(metric, lambda: read)
    assert line in lines_of(metrics)


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


RULE = "extender_plugin_execution_duration_seconds"
RULE_LABELS = 'extension_point="Filter"'
RECORDS: dict[str, tuple[list[tuple[Any, ...]], list[str]]] = {
    "nothing": (
        [],
        [
            'extender_requests_total{code="200",verb="bind"} 0.0',
            'extender_last_request_timestamp_seconds{verb="prioritize"} 0.0',
            'extender_last_decision_timestamp_seconds{verb="prioritize"} 0.0',
        ],
    ),
    "a fallback": (
        [("record_fallback", "filter", "stale", "pass")],
        ['extender_fallbacks_total{answer="pass",reason="stale",verb="filter"} 1.0'],
    ),
    "a write": (
        [("record_write", "nominate", "conflict", 0.5)],
        ['extender_api_write_duration_seconds_sum{call="nominate",result="conflict"} 0.5'],
    ),
    "requests by names and with nodes": (
        [("verbs.filter.record_request", 5), ("verbs.filter.record_request", 5, {"by_names": False})],
        [
            'extender_requests_by_form_total{form="names",verb="filter"} 1.0',
            'extender_requests_by_form_total{form="nodes",verb="filter"} 1.0',
        ],
    ),
    "answers": (
        [("verbs.filter.record_answer", status, 0.003, 7000, 300) for status in (200, 503, 200)],
        [
            'extender_requests_total{code="200",verb="filter"} 2.0',
            'extender_requests_total{code="503",verb="filter"} 1.0',
            'extender_request_duration_seconds_count{verb="filter"} 3.0',
            'extender_request_bytes_sum{verb="filter"} 21000.0',
            'extender_response_bytes_sum{verb="filter"} 900.0',
        ],
    ),
    "a failure": (
        [("verbs.filter.record_failure", "malformed")],
        ['extender_request_failures_total{reason="malformed",verb="filter"} 1.0'],
    ),
    "a rejection": (
        [("record_rejections", ["anti_affinity"])],
        ['extender_filter_rejections_total{reason="anti_affinity"} 1.0'],
    ),
    # KEP-3022, "What are the reasonable SLOs": 90 % of `plugin_execution_duration_seconds` within 100 ms, by plugin.
    "the time of a rule": (
        [("record_rule", "PodTopologySpread", "Filter", seconds) for seconds in (0.02, 0.1, 0.2)],
        [
            f'{RULE}_bucket{{{RULE_LABELS},le="0.1",plugin="PodTopologySpread"}} 2.0',
            f'{RULE}_count{{{RULE_LABELS},plugin="PodTopologySpread"}} 3.0',
        ],
    ),
    # KEP-2249, "What are the SLIs": `pod_scheduling_duration_seconds`.
    "a bound pod": (
        [("record_scheduled", 3.0, 2)],
        [
            "extender_pod_scheduling_duration_seconds_sum 3.0",
            'extender_pod_scheduling_attempts_bucket{le="1.0"} 0.0',
            'extender_pod_scheduling_attempts_bucket{le="2.0"} 1.0',
        ],
    ),
    "a preemption with a violation": (
        [
            ("preemption.record_start", 2),
            ("preemption.record_violation",),
            ("preemption.record_execution", "success", 0.25),
        ],
        [
            "extender_preemption_attempts_total 1.0",
            "extender_preemption_victims_sum 2.0",
            "extender_preemption_pdb_violations_total 1.0",
            *(
                f'extender_preemption_executions_total{{result="{result}"}} {float(result == "success")}'
                for result in PREEMPTION_RESULTS
            ),
        ],
    ),
    "a preemption that fails": (
        [("preemption.record_execution", "error", 0.25), ("preemption.record_end", "failed", 3.0)],
        [
            'extender_preemption_execution_seconds_sum{result="error"} 0.25',
            'extender_preemption_duration_seconds_sum{outcome="failed"} 3.0',
        ],
    ),
}


@pytest.mark.parametrize(("records", "lines"), RECORDS.values(), ids=RECORDS)
def test_what_is_recorded_is_on_the_page(records: list[tuple[Any, ...]], lines: list[str]) -> None:
    metrics = Metrics("1.2.3")
    holders = {"": metrics, "verbs.filter": metrics.verbs["filter"], "preemption": metrics.preemption()}
    for call, *values in records:
        holder, _, method = call.rpartition(".")
        options = values.pop() if values and isinstance(values[-1], dict) else {}
        getattr(holders[holder], method)(*values, **options)
    assert set(lines) <= lines_of(metrics)


def test_no_second_series_says_when_a_counter_was_made() -> None:
    assert "_created" not in Metrics("1").render().decode()


def test_the_duration_buckets_reach_from_a_tenth_of_a_millisecond_past_a_second() -> None:
    page = Metrics("1").render().decode()
    bounds = re.findall(r'extender_request_duration_seconds_bucket\{le="([^"]+)",verb="filter"\}', page)
    assert (float(bounds[0]), float(bounds[-2]), bounds[-1]) == (0.0001, 1.6384, "+Inf")


def test_a_distribution_is_shown_as_a_histogram_of_prometheus_client_shows_it() -> None:
    bounds, registry, metrics = (0.0001, 0.5, 1, 2, 1024), CollectorRegistry(), Metrics("1")
    disable_created_metrics()  # type: ignore[no-untyped-call]
    own = Distribution(bounds)
    theirs = Histogram("some", "Some.", ["verb"], buckets=bounds, registry=registry).labels("filter")
    for value in (0, 0.0001, 0.00011, 0.5, 1, 1.5, 2, 7, 1024, 1025, 3e9):
        own.observe(value)
        theirs.observe(value)
    metrics.report(histogram("some{verb}", "Some.", bounds, Source.REQUEST), lambda: {"filter": own})
    assert generate_latest(registry) in metrics.render()


def test_the_build_is_reported() -> None:
    page = Metrics("1.2.3").render().decode()
    assert 'extender_build_info{python_version="3.' in page
    assert 'version="1.2.3"} 1.0' in page


def test_the_time_of_the_last_answer_is_reported() -> None:
    metrics = Metrics("1")
    metrics.verbs["filter"].record_answer(200, 0.003, 7000, 300)
    found = re.search(r'extender_last_request_timestamp_seconds\{verb="filter"\} (\S+)', metrics.render().decode())
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
