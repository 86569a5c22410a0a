"""NATS and the memory service behind the ports. Errors of foreign libraries end here."""
