"""The dashboards of grafana/, their pictures and the table of metrics: written from the description here; users take the files."""
