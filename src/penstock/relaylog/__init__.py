"""The relay log: segments and their index, the writer, readers, consumers, retention and the archive."""
