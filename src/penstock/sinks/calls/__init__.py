"""The sinks `python` and `http`: changes of a table and epoch go to a function, or are posted to a URL."""
