"""A simulated cluster in memory: an API server with real HTTP, and a scheduler that speaks the extender protocol.

For demos and tests. The service reads it with the same client and watch code as a real cluster. Each package imports
only from those after it: scenario, scheduler, oracle, apiserver.
"""
