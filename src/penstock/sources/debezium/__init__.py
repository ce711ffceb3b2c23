"""The source `debezium`: topics of Kafka that Debezium fills."""
