"""How the bench measures: players in process and over HTTP, and the processes that they run."""
