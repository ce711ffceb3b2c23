"""The source `mysql`: MySQL and MariaDB."""
