"""Messages of Maxwell, Debezium and Canal that are not about rows. The core writes those about rows."""
