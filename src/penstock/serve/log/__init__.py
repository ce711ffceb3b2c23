"""What clients read: the relay logs as entries, from the log itself or from its newest part in memory."""
