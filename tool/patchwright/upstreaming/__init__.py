"""Keeping up with an upstream: moving its pin, sending to it, knowing what has landed."""
