"""The bench: decisions on synthetic clusters of a given size, next to an echo server in the same run.

`__main__.py` is the command. `in_process.py`, `over_http.py` and `mode_bursts.py` measure a load each in processes of their own.
"""
