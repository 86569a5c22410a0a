"""Memory behind request and reply: Postgres and pgvector."""
