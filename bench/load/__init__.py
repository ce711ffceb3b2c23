"""Reading one large table, with several numbers of connections: `make bench PARTS=load ROWS=5000000`."""
