"""What a test that was cut short may leave to the next one: an answer of the JVM that nobody has read."""

from __future__ import annotations


def forget_connection() -> None:
    """Closes this thread's connection to the JVM, if there is one; the next call connects anew. Otherwise the
    answer to a call that was cut short is taken for that of the next call, and every test behind it fails:
    the traceback that pytest keeps for its report keeps the connection, too."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    if gateway is None:
        return
    client = gateway._gateway_client
    connection = client.get_thread_connection()
    if connection is not None:
        connection.close(reset=True)
