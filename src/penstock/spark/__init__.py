"""What runs with Spark: the session, the stream of epochs, the tasks that decode, and what they write."""
