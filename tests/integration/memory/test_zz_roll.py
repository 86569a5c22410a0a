import asyncio, time, sys
from collections import Counter
from posthouse import bus
from tests.integration.memory.remote import Remote
from tests.integration.memory.requests import letter
from tests.integration.memory.test_outages import *

PATCH = '''
import asyncio, sys
from posthouse import bus
import memory.main
old = bus.stop
async def stop(broker, *a):
    subs = [s for s in broker.subscribers if s.subscription is not None]
    await asyncio.gather(*(s.subscription.drain() for s in subs))
    for s in subs: s.subscription = None
    await asyncio.sleep(0.05)
    await old(broker, *a)
bus.stop = stop
memory.main.main()
'''
async def test_rolling(process, database, nats, monkeypatch):
    import asyncio.subprocess
    from tests.support import processes
    real = asyncio.create_subprocess_exec
    async def patched(exe, m, pkg, **kw):
        return await real(exe, "-c", PATCH, **kw)
    monkeypatch.setattr(processes.asyncio, "create_subprocess_exec", patched)
    a = process(database); b = process(database)
    await asyncio.gather(a.start(), b.start())
    seen = Counter(); stop = False; slow = []
    async def client(n):
        r = Remote(await nats.connect(f"c{n}"), f"im.cli.k{n}")
        await r.open(letter(1))
        while not stop:
            t = time.monotonic()
            try:
                await r.beat(1); seen["ok"] += 1
                await r.open(letter(1)); seen["ok"] += 1
            except Exception as e:
                seen[repr(e)] += 1
            slow.append(time.monotonic() - t)
    tasks = [asyncio.create_task(client(n)) for n in range(16)]
    await asyncio.sleep(2)
    code = await a.stop()
    await asyncio.sleep(1)
    a2 = await process(database).start()
    await asyncio.sleep(1)
    code2 = await b.stop()
    await asyncio.sleep(4)
    stop = True
    await asyncio.gather(*tasks)
    print(code, code2, seen, max(slow))
    assert 0
