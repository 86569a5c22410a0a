"""The embedded servers are real, and keep what they acknowledged over kill -9."""

import asyncpg
import pytest
from nats.js.api import StreamConfig

from posthouse import subjects
from posthouse.address import Address
from posthouse.embedded.nats import NatsServer
from posthouse.embedded.postgres import PostgresServer
from posthouse.embedded.process import StartError
from tests.support.servers import Nats, crash


async def test_nats_keeps_acknowledged_messages_over_kill(nats: Nats) -> None:
    js = await nats.jetstream()
    await js.add_stream(StreamConfig(name="KEPT", subjects=["kept.>"]))
    for number in range(20):
        await js.publish("kept.x", str(number).encode(), timeout=2)
    await crash(nats.server)
    await nats.server.start()
    js = await nats.jetstream()
    assert (await js.stream_info("KEPT")).state.messages == 20


async def test_bus_has_all_streams(bus: Nats) -> None:
    js = await bus.jetstream()
    ack = await js.publish(subjects.inbound(Address.im("cli", "local")), b"{}", timeout=2)
    assert ack.stream == "INBOUND"


async def test_postgres_keeps_committed_rows_over_kill(own_postgres: PostgresServer) -> None:
    connection = await asyncpg.connect(own_postgres.dsn)
    await connection.execute("CREATE EXTENSION vector")
    await connection.execute("CREATE TABLE kept (at vector(3))")
    await connection.execute("INSERT INTO kept VALUES ('[1,2,3]')")
    connection.terminate()
    await crash(own_postgres)
    await own_postgres.start()
    connection = await asyncpg.connect(own_postgres.dsn)
    assert await connection.fetchval("SELECT at <-> '[1,2,4]' FROM kept") == 1
    await connection.close()


async def test_postgres_runs_with_the_settings_of_r25(postgres_server: PostgresServer) -> None:
    wanted = {
        "fsync": "on",
        "full_page_writes": "on",
        "synchronous_commit": "on",
        "data_checksums": "on",
        "max_connections": "100",
        "idle_in_transaction_session_timeout": "5s",
        "TimeZone": "UTC",
        "server_encoding": "UTF8",
    }
    connection = await asyncpg.connect(postgres_server.dsn)
    found = {name: await connection.fetchval(f"SHOW {name}") for name in wanted}
    await connection.close()
    assert found == wanted


async def test_a_left_over_nats_server_is_ended_first(own_nats: NatsServer) -> None:
    successor = NatsServer(own_nats.directory)
    await successor.start()
    assert not own_nats.running
    await successor.stop()


async def test_a_left_over_postgres_is_ended_first(own_postgres: PostgresServer) -> None:
    successor = PostgresServer(own_postgres.directory)
    await successor.start()
    assert not own_postgres.running
    await successor.stop()


async def test_a_foreign_process_in_the_pid_file_is_left_alone(
    own_nats: NatsServer, nats_url: str
) -> None:
    other = NatsServer(own_nats.directory.with_name("other"))
    other.directory.mkdir()
    (other.directory / "nats.pid").write_text(str(own_nats.pid))
    await other.start()
    assert own_nats.running
    await other.stop()


async def test_a_server_that_cannot_start_says_why(own_nats: NatsServer) -> None:
    rival = NatsServer(own_nats.directory.with_name("rival"), port=own_nats.port)
    with pytest.raises(StartError, match="address already in use"):
        await rival.start()
