"""The part `stages`: what each stage of a backlog's way costs, and what follows from that for more cores."""
