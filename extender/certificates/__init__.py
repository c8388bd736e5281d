"""Certificates as values: made by a private authority, checked, and rotated. No file, no network, no clock of its own.

Used by the command line, by the server and by the tasks; nothing else knows the library. Keys are made at random, so the
package is above the floors of decisions.
"""
