"""Tells others, in topics of Kafka, how snapshots go and that the pipeline lives."""
