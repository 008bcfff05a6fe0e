"""The startup probe: one server start on a patched tree, judged and killed whole."""
