"""Applying patches to trees: exact text, whole files, and the chain of tree ids."""
