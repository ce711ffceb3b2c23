"""The life of a chunk: pacing, staging and the rule by which it is placed into the stream."""
