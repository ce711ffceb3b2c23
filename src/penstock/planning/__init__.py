"""Plans epochs: decides what happens to each table, from the log and the staged chunks. Executes nothing."""
