"""``posthouse doctor`` as a process, on real servers: each fault is named, and its remedy works."""

import json
import os
import re
import shlex
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import asyncpg
import pytest
from nats.js.api import StorageType

from posthouse import streams
from posthouse.embedded import postgres
from posthouse.embedded.ports import free_port
from posthouse.embedded.postgres import PostgresServer
from tests.support.model_server import completion, refusal, serving
from tests.support.servers import Nats, crash, execute, fresh_database, migrate, postgres_folder
from tests.support.stack import run_cli

REMEDY = re.compile(r"`((?:\w+=\S+ )*)(posthouse bootstrap|python -m memory migrate)`")


@dataclass
class Finding:
    """One finding as JSON."""

    name: str
    state: str
    text: str
    remedy: str


class Doctor:
    """The command with the addresses of a test's servers."""

    def __init__(self, folder: Path, **env: str) -> None:
        self.folder = folder
        self.env = env
        self.code = -1

    async def findings(self, *args: str) -> dict[str, Finding]:
        """Run it; the findings by name."""
        own = ("--json", "--data-dir", str(self.folder / "data"))
        result = await run_cli("doctor", *own, *args, env=self.env, cwd=self.folder)
        assert "Traceback" not in result.err
        self.code = result.code
        return {f["name"]: Finding(**f) for f in json.loads(result.out)["findings"]}

    async def only_fault(self) -> Finding:
        """The one thing that is not ok."""
        (fault,) = [f for f in (await self.findings()).values() if f.state != "ok"]
        assert self.code == (1 if fault.state == "failed" else 0)
        return fault

    async def is_content(self) -> bool:
        """Whether everything is ok, by the findings and by the exit code."""
        found = await self.findings()
        return self.code == 0 and {f.state for f in found.values()} == {"ok"}

    def mend(self, fault: Finding) -> None:
        """Run the command of a remedy, as an operator would."""
        found = REMEDY.search(fault.remedy)
        assert found, fault
        command = (
            found[1] + f"{shlex.quote(sys.executable)} -m " + found[2].replace("python -m ", "")
        )
        subprocess.run(
            ["sh", "-c", command],
            env={**os.environ, **self.env},
            cwd=self.folder,
            check=True,
            capture_output=True,
            timeout=60,
        )


@pytest.fixture
def doctor(tmp_path: Path, bus: Nats, database: str) -> Doctor:
    """Looks at a bootstrapped bus and a migrated database."""
    return Doctor(tmp_path, POSTHOUSE_NATS_URL=bus.url, POSTHOUSE_POSTGRES_DSN=database)


async def test_a_healthy_system_is_ok_and_is_left_alone(doctor: Doctor, bus: Nats) -> None:
    js = await bus.jetstream()
    await js.delete_stream(streams.EVENTS)
    before = {info.config.name for info in await js.streams_info()}
    fault = await doctor.only_fault()
    assert (fault.name, fault.state) == ("stream EVENTS", "warning")
    assert {info.config.name for info in await js.streams_info()} == before
    doctor.mend(fault)
    assert await doctor.is_content()


async def test_servers_that_are_away(doctor: Doctor, bus: Nats) -> None:
    doctor.env["POSTHOUSE_POSTGRES_DSN"] = f"postgresql://u:secret@127.0.0.1:{free_port()}/x"
    await crash(bus.server)
    began = time.monotonic()
    found = await doctor.findings()
    assert time.monotonic() - began < 20
    assert doctor.code == 1
    assert f"cannot be used at {bus.url}" in found["nats"].text
    assert "start nats-server there" in found["nats"].remedy
    assert "cannot be used at 127.0.0.1:" in found["postgres"].text
    assert "start Postgres there" in found["postgres"].remedy
    assert "secret" not in str(found)
    await bus.server.start()
    assert (await doctor.findings())["nats"].state == "ok"


async def test_a_tunable_that_differs(doctor: Doctor, bus: Nats) -> None:
    js = await bus.jetstream()
    config = (await js.stream_info(streams.DLQ)).config
    config.max_age = 7200.0
    await js.update_stream(config)
    fault = await doctor.only_fault()
    assert (fault.name, fault.state) == ("stream DLQ", "warning")
    assert "max_age is 7200.0, declared 2592000.0" in fault.text
    doctor.mend(fault)
    assert await doctor.is_content()


async def test_a_stream_that_is_not_compatible(doctor: Doctor, bus: Nats) -> None:
    js = await bus.jetstream()
    await js.delete_stream(streams.DLQ)
    wrong = next(config for config in streams.streams() if config.name == streams.DLQ)
    wrong.storage = StorageType.MEMORY
    await js.add_stream(wrong)
    fault = await doctor.only_fault()
    assert (fault.name, fault.state) == ("stream DLQ", "failed"), fault
    assert "storage is 'memory', declared 'file'" in fault.text
    assert f"`nats --server {bus.url} stream rm -f DLQ`" in fault.remedy
    await js.delete_stream(streams.DLQ)
    doctor.mend(fault)
    assert await doctor.is_content()


async def test_a_stream_of_somebody_else(doctor: Doctor, bus: Nats) -> None:
    js = await bus.jetstream()
    config = (await js.stream_info(streams.DLQ)).config
    config.metadata = {streams.SCHEMA_KEY: "what?"}
    await js.update_stream(config)
    fault = await doctor.only_fault()
    assert fault.state == "warning"
    assert streams.SCHEMA_KEY in fault.text
    doctor.mend(fault)
    assert await doctor.is_content()


async def test_what_is_missing(doctor: Doctor, bus: Nats) -> None:
    js = await bus.jetstream()
    await js.delete_consumer(streams.OUTBOUND, "deliver-web")
    await js.delete_stream(streams.CRON)
    await js.delete_key_value(streams.DELIVERY_BUCKET)
    faults = [f for f in (await doctor.findings()).values() if f.state != "ok"]
    assert [(f.name, f.state) for f in faults] == [
        ("stream CRON", "failed"),
        ("consumer deliver-web on OUTBOUND", "failed"),
        ("bucket delivery", "failed"),
    ]
    doctor.mend(faults[1])
    assert await doctor.is_content()


async def test_the_consumer_of_a_configured_bot(doctor: Doctor) -> None:
    (doctor.folder / "posthouse.yaml").write_text('channels: {web: [{bot: "two"}]}\n')
    fault = await doctor.only_fault()
    assert fault.name == "consumer deliver-web=2Btwo on OUTBOUND"
    doctor.mend(fault)
    assert await doctor.is_content()


async def test_servers_of_the_configuration_file(doctor: Doctor, bus: Nats) -> None:
    file = doctor.folder / "other.yaml"
    file.write_text(json.dumps({"nats_url": bus.url, **_dsn(doctor)}))
    doctor.env.clear()
    js = await bus.jetstream()
    await js.delete_consumer(streams.CRON, streams.FIRES)
    found = await doctor.findings("--config", str(file))
    fault = found["consumer fires on CRON"]
    assert f"`POSTHOUSE_CONFIG={file} posthouse bootstrap`" in fault.remedy
    doctor.mend(fault)
    found = await doctor.findings("--config", str(file))
    assert (doctor.code, {f.state for f in found.values()}) == (0, {"ok"})


def _dsn(doctor: Doctor) -> dict[str, str]:
    return {"postgres_dsn": doctor.env["POSTHOUSE_POSTGRES_DSN"]}


@pytest.mark.parametrize("table", [False, True], ids=["missing", "behind"])
async def test_migrations(doctor: Doctor, postgres_server: PostgresServer, table: bool) -> None:
    async with fresh_database(postgres_server, "template1") as dsn:
        if table:
            connection = await asyncpg.connect(dsn)
            await connection.execute("create table alembic_version (version_num varchar(32))")
            await connection.close()
        doctor.env["POSTHOUSE_POSTGRES_DSN"] = dsn
        fault = await doctor.only_fault()
        assert (fault.name, fault.state) == ("postgres migrations", "failed")
        assert "the database is at no revision, this version needs" in fault.text
        doctor.mend(fault)
        assert await doctor.is_content()


async def test_a_database_that_is_newer(doctor: Doctor, database: str) -> None:
    connection = await asyncpg.connect(database)
    await connection.execute("update alembic_version set version_num = '9999'")
    await connection.close()
    fault = await doctor.only_fault()
    assert "newer than Posthouse" in fault.text
    assert "install the newer Posthouse" in fault.remedy


async def test_a_database_that_is_not_there(
    doctor: Doctor, postgres_server: PostgresServer
) -> None:
    doctor.env["POSTHOUSE_POSTGRES_DSN"] = postgres_server.dsn_of("nowhere")
    fault = await doctor.only_fault()
    assert 'database "nowhere" does not exist' in fault.text
    assert "createdb" in fault.remedy


async def test_functions_that_are_gone(doctor: Doctor, database: str) -> None:
    connection = await asyncpg.connect(database)
    await connection.execute("drop function turn_v1.commit, turn_v1.recall")
    fault = await doctor.only_fault()
    assert fault.text == "missing in schema turn_v1: commit, recall"
    folder = re.search(r"files of (\S+) in order", fault.remedy)
    assert folder
    assert "`drop schema if exists turn_v1 cascade`" in fault.remedy
    async with connection.transaction():
        await connection.execute("drop schema if exists turn_v1 cascade")
        for source in _sources(Path(folder[1])):
            await connection.execute(source)
    await connection.close()
    assert await doctor.is_content()


def _sources(folder: Path) -> list[str]:
    return [file.read_text("utf-8") for file in sorted(folder.iterdir())]


@pytest.mark.parametrize(
    ("setting", "value", "state"),
    [
        ("synchronous_commit", "off", "failed"),
        ("idle_in_transaction_session_timeout", "0", "warning"),
    ],
)
async def test_a_setting_of_postgres(
    doctor: Doctor, postgres_server: PostgresServer, setting: str, value: str, state: str
) -> None:
    name = doctor.env["POSTHOUSE_POSTGRES_DSN"].rpartition("/")[2]
    await execute(postgres_server, f"alter database {name} set {setting} = '{value}'")
    fault = await doctor.only_fault()
    assert (fault.name, fault.state) == (f"postgres {setting}", state)
    remedy = re.search(r"`(alter database .*?)`", fault.remedy)
    assert remedy, fault
    await execute(postgres_server, remedy[1])
    assert await doctor.is_content()


async def test_settings_of_the_whole_server(
    doctor: Doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    started_with = {k: v for k, v in postgres.SETTINGS.items() if k != "full_page_writes"}
    monkeypatch.setattr(postgres, "SETTINGS", started_with | {"max_connections": "50"})
    with postgres_folder() as folder:
        server = PostgresServer(folder)
        await server.start()
        migrate(server.dsn)
        doctor.env["POSTHOUSE_POSTGRES_DSN"] = server.dsn
        await execute(server, "alter system set full_page_writes = off")
        await execute(server, "select pg_reload_conf()")
        found = await doctor.findings()
        connections, writes = found["postgres max_connections"], found["postgres full_page_writes"]
        assert (connections.state, writes.state) == ("warning", "failed")
        assert connections.remedy == "start Postgres with `-c max_connections=100`"
        for statement in re.findall(r"`(.*?)`", writes.remedy):
            await execute(server, statement)
        fault = await doctor.only_fault()
        assert fault == connections
        await server.stop()


async def test_a_model_whose_key_is_missing_then_wrong_then_good(doctor: Doctor) -> None:
    async with serving() as model:
        provider = {"kind": "openai", "base_url": model.base_url, "api_key_env": "ACME_KEY"}
        config = {"providers": {"acme": provider}, "tiers": {"standard": ["acme/m-1"]}}
        (doctor.folder / "posthouse.yaml").write_text(json.dumps(config))
        fault = await doctor.only_fault()
        assert fault.name == "model acme/m-1"
        assert "the environment variable ACME_KEY is not set" in fault.text
        assert "`export ACME_KEY=<your key>`" in fault.remedy

        doctor.env["ACME_KEY"] = "secret-1"
        model.will(refusal(401, "Incorrect API key"))
        fault = await doctor.only_fault()
        assert "the key is not accepted" in fault.text
        assert "$ACME_KEY (providers.acme.api_key_env)" in fault.remedy

        model.will(completion({"role": "assistant", "content": "ok"}))
        assert await doctor.is_content()
    fault = await doctor.only_fault()
    assert "cannot be reached" in fault.text


async def test_nothing_runs_and_a_port_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        doctor = Doctor(tmp_path, POSTHOUSE_HTTP_PORT=str(port))
        found = await doctor.findings()
        assert doctor.code == 1
        assert "start it with `posthouse up --data-dir" in found["stack"].remedy
        assert "nats" not in found
        assert "postgres" not in found
        assert "already in use" in found[f"port {port}"].text
        assert " --http-port 0` takes any free one" in found[f"port {port}"].remedy
    assert f"port {port}" not in await doctor.findings()


async def test_a_configuration_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "posthouse.yaml").write_text("# mine\nslotz: 3\n")
    doctor = Doctor(tmp_path)
    (finding,) = (await doctor.findings()).values()
    assert (finding.name, finding.state, doctor.code) == ("configuration", "failed", 1)
    assert "posthouse.yaml:2: slotz" in finding.text
