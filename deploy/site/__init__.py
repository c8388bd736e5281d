"""One searchable site of the Markdown files (`make docs`): which pages it has in which order, and how Sphinx builds it."""
