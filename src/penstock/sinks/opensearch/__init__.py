"""The sink `opensearch`: each row is a document of OpenSearch or Elasticsearch."""
