"""The release of groups of gated pods."""
