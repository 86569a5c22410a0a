"""What ``/readyz`` looks at."""

import nats.errors
from nats.aio.client import Client

from posthouse import readiness, streams
from posthouse.errors import Unavailable
from posthouse.health import Health
from scheduler.settings import JETSTREAM_TIMEOUT_S


class State:
    """What the process has reached so far."""

    def __init__(self, nats_url: str) -> None:
        self._nats_url = nats_url
        self.connection: Client | None = None
        self.serving = False

    def add_to(self, health: Health) -> None:
        """Register every check."""
        health.add("process", self._is_serving)
        health.add("nats", self._connected)
        health.add("fires", self._fires)
        health.add("schedules", self._schedules)

    async def _is_serving(self) -> None:
        if not self.serving:
            raise Unavailable("the process is starting or stopping")

    async def _connected(self) -> None:
        self._bus()

    async def _fires(self) -> None:
        try:
            js = self._bus().jetstream(timeout=JETSTREAM_TIMEOUT_S)
            await js.consumer_info(streams.CRON, streams.FIRES)
        except nats.errors.Error as error:
            raise Unavailable(f"the durable fires on CRON: {type(error).__name__}") from error

    async def _schedules(self) -> None:
        try:
            js = self._bus().jetstream(timeout=JETSTREAM_TIMEOUT_S)
            await js.key_value(streams.SCHEDULES_BUCKET)
        except nats.errors.Error as error:
            raise Unavailable(f"the bucket schedules: {type(error).__name__}") from error

    def _bus(self) -> Client:
        return readiness.connected(self.connection, self._nats_url)
