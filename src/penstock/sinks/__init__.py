"""Sinks: where changes become durable.

`base.py` says what a sink promises, `kind.py` what it registers, and `registry.py` finds it by its name.
"""
