"""Messages in Kafka, exactly once."""
