"""Connections to servers of others. Whatever these send, an answer is bounded and whole, or there is none."""
