"""What a call costs does not grow with what is stored (P9): pages touched, not time."""

import json
from collections.abc import AsyncIterator

import pytest

from tests.integration.memory.requests import KEY
from tests.integration.memory.rows import TABLES, Rows

# What lies behind: conversations, and of ours the finished turns.
OTHERS = 300
FILL = """
with numbers as (select generate_series($2::int, $3::int) as n),
c as (select tenant_id from conversation where key = $1),
m as (insert into mailbox (key, generation, seq, source_id, body, state, done_epoch)
      select $1, 1000, n, 's' || n, '{"content": "hello"}', 'done', 1 from numbers),
s as (insert into step (key, generation, seq, n, kind, body, epoch)
      select $1, 1000, n, i, 'model', '{"message": {"content": "hm"}}', 1
      from numbers, generate_series(0, 2) i),
o as (insert into outbound (key, generation, seq, id, idempotency_key, body, published)
      select $1, 1, n, $1 || n, 'turn:' || n, '{"content": "answer"}', true from numbers)
insert into history (tenant_id, generation, seq, message)
    select tenant_id, 1000, n, '{"role": "user", "content": "hello"}' from numbers, c
"""
MANIFEST = (
    """{"run_id": "r", "deadline_ms": 1, "positions": [{"generation": 1000, "seq": 99999}]}"""
)
BODY = '{"content": "hello"}'
STEP = '{"n": 1, "kind": "model", "body": {"message": {"content": "hm"}}}'
# One turn, as a worker makes it; each call sees what the ones before it did.
TURN = {
    "open": f"turn_v1.open('{KEY}', 'a', 1000, 99999, 'new', '{BODY}', null, 'w', 6, 50)",
    "again": f"turn_v1.open('{KEY}', 'a', 1000, 99999, 'new', '{BODY}', null, 'w', 6, 50)",
    "begin": f"turn_v1.begin('{KEY}', 1, '{MANIFEST}', 50)",
    "record": f"turn_v1.record('{KEY}', 1, 1000, 99999, '{STEP}', 0, '[]')",
    "emit": f"turn_v1.emit('{KEY}', 1, 1000, 99999, 'e', '{BODY}', null)",
    "control": f"turn_v1.control('{KEY}', 'a', 'stop', 1000, 100000)",
    "heartbeat": f"""turn_v1.heartbeat('w', '[{{"key": "{KEY}", "epoch": 1}}]', '[]',
        '[{{"key": "{KEY}", "generation": 1, "seq": 1}}]', 8, 6, 4)""",
    "recall": f"turn_v1.recall('{KEY}', 50, null)",
    "missing": f"turn_v1.missing('{KEY}', 1, 7)",
    "commit": f"""turn_v1.commit('{KEY}', 1, 1000, 99999,
        '[{{"generation": 1000, "seq": 99999}}]', 'done', null, '[{BODY}]',
        '[{{"message": {{"role": "user"}}}}, {{"step": 1}}]', 1000, 99999, 6)""",
}


async def _fill(rows: Rows, first: int, last: int) -> None:
    await rows.connection.execute(
        "insert into conversation (key) values ($1) on conflict do nothing", KEY
    )
    await rows.connection.execute("update conversation set out_seq = $2 where key = $1", KEY, last)
    await rows.connection.execute(FILL, KEY, first, last)


@pytest.fixture
async def filled(rows: Rows) -> AsyncIterator[Rows]:
    """100 finished turns of ours, and other conversations."""
    await rows.connection.execute(
        "insert into conversation (key) select 'other' || n from generate_series(1, $1::int) n",
        OTHERS,
    )
    await _fill(rows, 1, 100)
    yield rows
    await rows.clear()


async def _pages(rows: Rows) -> dict[str, int]:
    """Pages that each call of a turn touches; nothing is kept."""
    found = {}
    transaction = rows.connection.transaction()
    await transaction.start()
    # The first run also reads the catalogue; after some, Postgres keeps its plans for good.
    for _ in range(8):
        nested = rows.connection.transaction()
        await nested.start()
        for name, call in TURN.items():
            plan = await rows.connection.fetchval(
                f"explain (analyze, buffers, format json) select {call}"
            )
            top = json.loads(plan)[0]["Plan"]
            found[name] = top["Shared Hit Blocks"] + top["Shared Read Blocks"]
        await nested.rollback()
    await transaction.rollback()
    return found


@pytest.mark.parametrize("analyzed", ["never", "empty", "young", "old"])
async def test_a_long_past_costs_nothing(rows: Rows, analyzed: str) -> None:
    """Also with plans made when there was less: Postgres looks again once a minute at most."""
    if analyzed == "empty":
        for table in TABLES:
            await rows.connection.execute(f"vacuum full {table}")
    await _pages(rows)
    await _fill(rows, 1, 100)
    if analyzed == "young":
        await rows.connection.execute("vacuum analyze")
    young = await _pages(rows)
    await _fill(rows, 101, 2000)
    if analyzed == "old":
        await rows.connection.execute("vacuum analyze")
    old = await _pages(rows)
    # A level more in each index at most.
    grown = {name: (young[name], old[name]) for name in TURN if old[name] > 1.3 * young[name] + 5}
    assert grown == {}


async def test_a_long_past_before_new_costs_nothing(filled: Rows) -> None:
    await _fill(filled, 101, 2000)
    old = await _pages(filled)
    await filled.connection.execute("update conversation set new_generation = 1000, new_seq = 1999")
    cleared = await _pages(filled)
    assert cleared["begin"] <= old["begin"] + 5


async def test_no_call_reads_a_whole_table(filled: Rows) -> None:
    await _fill(filled, 101, 2000)
    large = [table for table in TABLES if table != "call"]
    before = await _scans(filled)
    await _pages(filled)
    after = await _scans(filled)
    scanned = {table: after[table] - before[table] for table in large}
    assert scanned == dict.fromkeys(large, 0)


async def _scans(rows: Rows) -> dict[str, int]:
    await rows.connection.execute("select pg_stat_force_next_flush()")
    found = await rows.connection.fetch("select relname, seq_scan from pg_stat_user_tables")
    return {row["relname"]: row["seq_scan"] for row in found}


async def test_the_cost_of_a_beat_does_not_grow_with_what_is_published(filled: Rows) -> None:
    young = await _pages(filled)
    await _fill(filled, 101, 4000)
    await filled.connection.execute("vacuum")
    old = await _pages(filled)
    assert old["heartbeat"] <= young["heartbeat"] + 10
