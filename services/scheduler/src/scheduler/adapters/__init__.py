"""JetStream behind the ports. Errors of foreign libraries end here."""
