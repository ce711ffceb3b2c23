"""The sink `redis-streams`: messages in streams of Redis or Valkey."""
