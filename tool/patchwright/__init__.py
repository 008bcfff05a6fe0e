"""patchwright: a patch series manager for upstreams that do not support your GPU yet."""

__version__ = "0.1.0"
