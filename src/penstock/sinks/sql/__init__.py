"""The sink `jdbc`: tables of a SQL database, kept equal to the source's."""
