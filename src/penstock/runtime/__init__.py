"""A running pipeline: its loop, how its parts are put together, progress, checks of targets, shutdown."""
