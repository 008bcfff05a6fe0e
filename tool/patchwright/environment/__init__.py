"""The environment that the patched upstreams run in: rebuilt from the lock, checked, bundled."""
