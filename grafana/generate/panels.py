"""The dashboards of `dashboards.yaml`, and their JSON form for Grafana 10 or later.

Panels flow from left to right in rows of 24 columns. Every dashboard has a variable for the data source and one each
for the Prometheus labels `cluster`, `namespace`, `job` and `instance`; its uid is the MD5 of its file name, as in kubernetes-mixin.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeAlias

import yaml

Json: TypeAlias = dict[str, Any]

_DATASOURCE: Json = {"type": "prometheus", "uid": "${datasource}"}
_COLUMNS = 24
_MOST_SERIES = 8  # of a panel at any moment: more curves cannot be told from each other
_LIMITED = ("topk(", "bottomk(")
# Labels with few values by their nature: a limit leaves none of them out, and the description does not mention it.
_FEW = frozenset({"verb", "form", "webhook", "configuration", "generation", "mode", "placement"})
_CHOSEN = 'cluster=~"$cluster", namespace=~"$namespace", job=~"$job", instance=~"$instance"'


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel. `queries` are expressions by legend; `unit` is Grafana's name of the unit."""

    title: str
    description: str
    queries: Mapping[str, str]
    unit: str = "short"
    kind: str = "timeseries"
    width: int = 8
    height: int = 8
    stacked: bool = False
    steps: Sequence[tuple[float | None, str]] = ((None, "green"),)

    @classmethod
    def of(cls, title: str, description: str, queries: Json, look: Json | None = None) -> Self:
        """A panel as the file has it, with at most eight series."""
        look = dict(look or {})
        found = {name: each.replace("$chosen", _CHOSEN) for name, each in queries.items()}
        limited = _limited(found, has_others=look.pop("others", False))
        is_cut = any(
            limited[name] != each and not set(re.findall(r"\{\{(\w+)\}\}", name)) <= _FEW
            for name, each in found.items()
        )
        most = "" if not is_cut or "others" in limited else " Shown are the largest."
        return cls(title, f"{description}{most}", limited, **look)

    def render(self, number: int, x: int, y: int) -> Json:
        """The panel at its place on the grid."""
        thresholds = {"mode": "absolute", "steps": [{"value": value, "color": color} for value, color in self.steps]}
        defaults: Json = {"unit": self.unit, "thresholds": thresholds}
        if self.kind == "timeseries":
            stacking = {"mode": "normal" if self.stacked else "none"}
            defaults["min"] = 0
            defaults["custom"] = {"fillOpacity": 20 if self.stacked else 0, "showPoints": "never", "stacking": stacking}
        return {
            "id": number,
            "type": self.kind,
            "title": self.title,
            "description": self.description,
            "datasource": _DATASOURCE,
            "gridPos": {"x": x, "y": y, "w": self.width, "h": self.height},
            "fieldConfig": {"defaults": defaults, "overrides": []},
            "options": _OPTIONS[self.kind] | self._naming(),
            "targets": [self._target(letter, legend) for letter, legend in zip("ABCDEFGH", self.queries, strict=False)],
        }

    def _naming(self) -> Json:
        """A legend made of labels says something even of one series; left to itself Grafana would not show it."""
        is_telling = self.kind == "stat" and any("{{" in legend for legend in self.queries)
        return {"textMode": "value_and_name"} if is_telling else {}

    def _target(self, letter: str, legend: str) -> Json:
        return {
            "refId": letter,
            "datasource": _DATASOURCE,
            "expr": self.queries[legend],
            "legendFormat": legend,
            "instant": self.kind == "stat",
            "range": self.kind != "stat",
        }


def _limited(queries: Mapping[str, str], *, has_others: bool) -> dict[str, str]:
    """The queries with the series that a panel has room for. ``has_others``: with the sum of what the only long one leaves out."""
    many = [name for name, each in queries.items() if "{{" in name and not each.startswith(_LIMITED)]
    room = _MOST_SERIES - has_others - sum("{{" not in name for name in queries)
    limited = {name: f"topk({room // len(many)}, {each})" if name in many else each for name, each in queries.items()}
    if has_others:
        (name,) = many
        limited["others"] = f"sum({queries[name]} unless {limited[name]})"
    return limited


_OPTIONS: dict[str, Json] = {
    "timeseries": {
        "legend": {"displayMode": "table", "placement": "bottom", "calcs": ["mean", "max"]},
        "tooltip": {"mode": "multi", "sort": "desc"},
    },
    "stat": {
        "colorMode": "value",
        "graphMode": "none",
        "textMode": "auto",
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
    },
}


@dataclass(frozen=True, slots=True)
class Dashboard:
    """One file in grafana/dashboards: rows of panels by title."""

    file: str
    title: str
    description: str
    rows: Mapping[str, Sequence[Panel]]

    @classmethod
    def all(cls) -> list[Self]:
        """The dashboards that `dashboards.yaml` describes."""
        found = yaml.safe_load(Path(__file__).with_name("dashboards.yaml").read_text("utf-8"))
        return [
            cls(
                **each
                | {"rows": {row: [Panel.of(**panel) for panel in panels] for row, panels in each["rows"].items()}}
            )
            for each in found
        ]

    @property
    def panels(self) -> list[Panel]:
        """The panels of all rows."""
        return [panel for row in self.rows.values() for panel in row]

    def render(self, runbook: str = "") -> Json:
        """The document that Grafana imports. ``runbook``: an address for a link; empty for none."""
        return {
            "uid": hashlib.md5(self.file.encode(), usedforsecurity=False).hexdigest(),
            "title": f"Placement extender / {self.title}",
            "description": self.description,
            "tags": ["placement-extender"],
            "schemaVersion": 39,
            "version": 1,
            "editable": False,
            "graphTooltip": 1,
            "timezone": "utc",
            "refresh": "30s",
            "time": {"from": "now-1h", "to": "now"},
            "templating": {"list": _VARIABLES},
            "annotations": {"list": _ANNOTATIONS},
            "links": [
                {
                    "type": "dashboards",
                    "title": "Placement extender",
                    "tags": ["placement-extender"],
                    "asDropdown": True,
                    "includeVars": True,
                    "keepTime": True,
                },
                *([{"type": "link", "title": "Runbook", "url": runbook, "targetBlank": True}] if runbook else []),
            ],
            "panels": self._layout(),
        }

    def _layout(self) -> list[Json]:
        found: list[Json] = []
        y = 0
        for title, panels in self.rows.items():
            found.append(_row(title, len(found) + 1, y))
            y, x, tallest = y + 1, 0, 0
            for panel in panels:
                if x + panel.width > _COLUMNS:
                    x, y, tallest = 0, y + tallest, 0
                found.append(panel.render(len(found) + 1, x, y))
                x, tallest = x + panel.width, max(tallest, panel.height)
            y += tallest
        return found


def _row(title: str, number: int, y: int) -> Json:
    return {
        "id": number,
        "type": "row",
        "title": title,
        "collapsed": False,
        "gridPos": {"x": 0, "y": y, "w": _COLUMNS, "h": 1},
        "panels": [],
    }


def _label_values(name: str, query: str) -> Json:
    return {
        "name": name,
        "label": name,
        "type": "query",
        "datasource": _DATASOURCE,
        "query": {"query": query, "refId": name},
        "definition": query,
        "includeAll": True,
        "allValue": ".*",
        "multi": True,
        "refresh": 2,
        "sort": 1,
        "current": {"text": ["All"], "value": ["$__all"]},
    }


_VARIABLES: list[Json] = [
    {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
        "refresh": 1,
        "current": {},
    },
    # Without a label of this name in Prometheus, a variable has the value All alone, which matches a missing label.
    _label_values("cluster", "label_values(extender_build_info, cluster)"),
    _label_values("namespace", 'label_values(extender_build_info{cluster=~"$cluster"}, namespace)'),
    _label_values("job", 'label_values(extender_build_info{cluster=~"$cluster", namespace=~"$namespace"}, job)'),
    _label_values(
        "instance",
        'label_values(extender_build_info{cluster=~"$cluster", namespace=~"$namespace", job=~"$job"}, instance)',
    ),
]


def _annotation(name: str, color: str, query: str, text: str) -> Json:
    """Moments that are marked in all panels."""
    return {
        "name": name,
        "datasource": _DATASOURCE,
        "enable": True,
        "iconColor": color,
        "expr": query.replace("$chosen", _CHOSEN),
        "step": "30s",
        "titleFormat": name,
        "textFormat": text,
    }


# Also read by a test, as queries of panels are.
ANNOTATIONS = {
    "Restart": ("red", "changes(process_start_time_seconds{$chosen}[1m]) > 0", "{{instance}}"),
    "Takeover": ("blue", "increase(extender_leader_terms_total{$chosen}[1m]) > 0", "{{instance}} leads"),
}
_ANNOTATIONS = [_annotation(name, *each) for name, each in ANNOTATIONS.items()]
