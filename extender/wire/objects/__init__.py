"""Objects of the API server, decoded to the fields that decisions read: one page or one watch line at a time."""
