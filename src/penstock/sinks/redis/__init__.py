"""The sink `redis`: each row is a key of Redis or Valkey."""
