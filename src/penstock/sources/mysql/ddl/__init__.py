"""From SQL text to statements, and from statements to the definitions of tables. Pure."""
