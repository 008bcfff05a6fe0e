"""Hand edits in installed packages, turned into patches."""
