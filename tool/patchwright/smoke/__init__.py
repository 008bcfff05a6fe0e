"""Smoke tests: the harness that runs a patch's test in the patched tree."""
