"""The turn loop: leases, order, resume. The engine knows nothing of it."""
