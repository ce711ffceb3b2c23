"""A change log in Parquet files."""
