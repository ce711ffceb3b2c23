"""The sink `nats`: messages in a stream of NATS JetStream."""
