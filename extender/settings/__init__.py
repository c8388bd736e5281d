"""Every setting with its default, a module for each group of sections; `configuration` joins them and parses the document."""
