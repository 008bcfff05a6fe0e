"""``python -m patchwright`` is the console script."""

from patchwright.main import main

main()
