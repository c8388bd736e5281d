"""A cluster in memory: an API server over real HTTP and a small scheduling loop that speaks the extender protocol.

For trying and testing. It is read through the same client and watch code as a real cluster, never beside it.
"""
