"""Certificates as values: made by a private authority, checked, and rotated. No file, no network, no clock of its own.

Used by the command line, the server and the tasks. No other package imports the cryptography library. Keys are random, so this
package is above the packages that decide.
"""
