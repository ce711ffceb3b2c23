"""What an epoch does, whatever engine runs it: the work of its tasks, messages for sinks that take
them, and what the state store records of it. `spark/` runs it."""
