"""Penstock: change data capture for Spark."""

__version__ = "0.1.0"
