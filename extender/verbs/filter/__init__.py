"""The filter verb: which of the requested nodes may take the incoming pod. Start at `pipeline`."""
