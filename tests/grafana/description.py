"""The dashboards, in the order in which a person would look at them. Each is described in a file of its own.

A metric that is on no dashboard fails `test_dashboards`, and so does a query for one that does not exist.
"""

from __future__ import annotations

from tests.grafana.dashboard_admission import ADMISSION
from tests.grafana.dashboard_index import INDEX
from tests.grafana.dashboard_overview import OVERVIEW
from tests.grafana.dashboard_preemption import PREEMPTION
from tests.grafana.dashboard_verbs import VERBS

DASHBOARDS = (OVERVIEW, VERBS, INDEX, PREEMPTION, ADMISSION)
