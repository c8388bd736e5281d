"""A cluster in memory: an API server over real HTTP and a small scheduling loop that speaks the extender protocol.

For trying and testing: the service reads it through the same client and watch code as a real cluster. Each room imports
only from those below it: bench, scenario, scheduler, oracle, apiserver.
"""
