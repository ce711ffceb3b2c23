"""The server of HTTP that pipelines and subscription servers share: connections, limits, roles, errors."""
