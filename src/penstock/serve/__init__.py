"""The subscription server: clients of Canal read the relay log through it (docs/serve.md)."""
