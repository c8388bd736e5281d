"""`python -m tests.grafana`: writes the dashboards and the table of metrics anew."""

from tests.grafana.files import write_all

write_all()
