"""The nouns of the domain as frozen values. Nothing here does I/O or imports pyspark."""
