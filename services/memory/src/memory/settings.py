"""Numbers of the memory service."""

import os

from posthouse.settings import Settings

# Postgres says 100 connections (R25); 20 stay for operators and migrations, two replicas share.
MAX_CONNECTIONS = 100
RESERVED_CONNECTIONS = 20
REPLICAS = 2

CONNECT_TIMEOUT_S = 10.0
COMMAND_TIMEOUT_S = 2.0
LOCK_TIMEOUT_MS = 1500
SESSION = {
    "application_name": "memory",
    "lock_timeout": str(LOCK_TIMEOUT_MS),
    # Plans are kept: one that was made while a table was small must not read all of it later.
    "enable_seqscan": "off",
    "jit": "off",
}
# Longer waits for a connection mean overload: answer busy at once (R11).
POOL_PATIENCE_S = 0.5
# Renewals have connections of their own, so that a full pool never costs a lease.
HEARTBEAT_CONNECTIONS = 2


def pool_size(settings: Settings) -> int:
    """Connections for everything but renewals: about four a core, within this replica's share."""
    if settings.memory.pool_size:
        return settings.memory.pool_size
    share = (MAX_CONNECTIONS - RESERVED_CONNECTIONS) // REPLICAS - HEARTBEAT_CONNECTIONS
    return max(2, min(4 * (os.cpu_count() or 1), share))
