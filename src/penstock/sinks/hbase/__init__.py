"""The sink `hbase`: each row is a row of an HBase table, with a cell for each column."""
