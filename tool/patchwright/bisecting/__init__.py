"""Finding which patches break startup, with as few starts as possible."""
