"""Numbers of the worker; what an operator sets is in ``posthouse.settings``."""

HEARTBEAT_S = 1.0
# Between two beats at least, so that many reports share one.
MIN_BEAT_S = 0.1
# A worker whose event loop is blocked for so many lease times ends itself.
STALL_LEASES = 3
# A renewal that takes longer is repeated at once (R11); the lease lasts several beats.
RENEW_TIMEOUT_S = 0.8
ADOPT_PER_BEAT = 8
# Conversations owned per slot: waiting ones cost a lease, not a turn.
OWNED_PER_SLOT = 4

FETCH_TIMEOUT_S = 5.0
# How long a message waits for the memory service before it goes back to the stream.
OPEN_PATIENCE_S = 8.0
NAK_DELAY_S = 2.0
CALL_PATIENCE_S = 20.0
# A finished turn is worth waiting for: nobody else can commit it while we renew.
COMMIT_PATIENCE_S = 120.0
PUBLISH_TIMEOUT_S = 3.0

# A message whose workers vanished this often fails: three in a row, five in all (R10).
MAX_ATTEMPTS = 3
MAX_VANISHED = 5

HISTORY_LIMIT = 200
EVENT_TIMEOUT_S = 2.0
# Time for running turns to reach a step border after SIGTERM; then they are cut short.
HANDOVER_S = 15.0
AGENT_REQUESTS = 64
