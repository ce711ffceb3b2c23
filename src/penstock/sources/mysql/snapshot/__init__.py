"""How chunks of tables are cut and read, and what their watermarks mean."""
