"""The commands that say why and what if: `extender explain` and `whatif`."""
