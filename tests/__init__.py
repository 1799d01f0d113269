"""The tests mirror the sources; helpers are imported as `tests.<directory>.<module>`."""

import os
import sys

# Modules are compiled once and not in every run and every server of it, whatever the environment says.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
