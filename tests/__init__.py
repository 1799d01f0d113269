"""The tests mirror the sources; helpers are imported as `tests.<directory>.<module>`."""
