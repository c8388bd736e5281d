"""The measurements of the bench, in process and over HTTP, and the processes that they start."""
