"""Pods as plain JSON that a person gives: completed, checked and made from templates as in a cluster."""
