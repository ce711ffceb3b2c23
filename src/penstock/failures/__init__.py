"""Turns failures of Spark, catalogs, stores and the operating system, and bugs, into one message with a hint.
The stack trace goes to a file."""
