"""``python -m quiver_lab``."""

from quiver_lab.cli import main

main()
