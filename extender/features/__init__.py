"""Features that can be switched on or off, each in a folder of its own. The name of a file says on which floor it stands."""
