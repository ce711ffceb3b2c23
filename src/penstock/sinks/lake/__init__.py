"""Lake tables: targets that are the tables as they are at the source. `iceberg` and `delta` are formats."""
