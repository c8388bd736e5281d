"""One update case: an old and a new pod; what differs from the verdict and the errors of the API server."""

from __future__ import annotations

from typing import Any

from extender.simulator.apiserver.pod_updates import allowed

Case = dict[str, Any]


def differences(case: Case) -> list[str]:
    """One line for each part of the answer that is not the API server's: the verdict, and each error's field and type."""
    verdict = allowed(case["old"], case["new"])
    lines = (
        [] if verdict.is_allowed == case["allowed"] else [f"allowed: {verdict.is_allowed}, expected {case['allowed']}"]
    )
    got = {(error.field, str(error.type)) for error in verdict.errors}
    want = {(error["field"], error["type"]) for error in case["errors"]}
    lines += [f"{field}: {kind} is not an error of the API server" for field, kind in sorted(got - want)]
    return lines + [f"{field}: {kind} is missing" for field, kind in sorted(want - got)]
