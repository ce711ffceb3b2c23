"""Pinned downloads, and the packages that travel to workers."""
