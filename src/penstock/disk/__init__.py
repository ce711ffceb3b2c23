"""Directories, locks and replaced files of the local disk."""
