"""Where the pods of a group go, and the patch that lets them: plain functions of objects and the view."""
