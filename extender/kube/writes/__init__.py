"""Writes to pods and to the Lease, and the values that they carry."""
