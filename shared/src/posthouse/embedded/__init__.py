"""The whole system on one machine: real NATS and Postgres servers as child processes."""
