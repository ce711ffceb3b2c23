"""The sink `rabbitmq-streams`: messages in streams of RabbitMQ."""
