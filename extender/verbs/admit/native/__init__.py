"""Policies and limits of quotas in the API server's own form: MutatingAdmissionPolicy and ValidatingAdmissionPolicy."""
