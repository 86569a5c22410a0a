"""Creates streams, consumers and buckets, and compares what is there (R23).

``bootstrap`` is idempotent and only adds: a missing asset is created, a tunable that differs is
updated, an incompatible difference raises Drift. Services call ``check``, which changes nothing
except that a missing EVENTS stream (memory storage, gone after a restart) is created.
``differences`` changes nothing at all.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import nats.errors
import structlog
from nats.js import JetStreamContext
from nats.js import errors as js_errors
from nats.js.api import StreamInfo

from posthouse import assets, streams
from posthouse.assets import Asset, Difference
from posthouse.errors import Drift, Unavailable

log = structlog.get_logger(__name__)


async def differences(js: JetStreamContext, domains: Iterable[str] = ()) -> list[Difference]:
    """Everything that is not as declared; changes nothing.

    ``domains``: the bots that deliver outbound messages. What lies in a missing stream is not
    named beside it. Raises Unavailable when the server does not answer.
    """
    with _clear_errors():
        found = await _compare(js, domains)
    missing = {asset.name for asset, different in found if any(d.missing for d in different)}
    return [d for asset, different in found if asset.lies_in not in missing for d in different]


async def bootstrap(js: JetStreamContext, domains: Iterable[str]) -> list[Difference]:
    """Bring the server into the declared shape; returns what was tuned.

    Raises Drift, before anything is changed, when an asset differs in a field that cannot be
    changed safely; Drift when the server refuses an asset; Unavailable when it does not answer.
    """
    with _clear_errors():
        found = await _compare(js, domains)
        _refuse([d for _, different in found for d in different if d.incompatible])
        for asset, different in found:
            if any(d.missing for d in different):
                await asset.create(js)
            elif different:
                await asset.tune(js)
    return [d for _, different in found for d in different if not d.missing]


async def check(js: JetStreamContext, domains: Iterable[str] = ()) -> list[Difference]:
    """Compare only; returns tunable differences as warnings. Raises Drift, Unavailable."""
    found = await differences(js, domains)
    events = Difference(f"stream {streams.EVENTS}")
    if events in found:
        found.remove(events)
        with _clear_errors():
            await create_events(js)
    _refuse([d for d in found if d.incompatible])
    _refuse([d for d in found if d.missing], "; run `posthouse bootstrap`")
    for difference in found:
        log.warning("streams.tunable_drift", asset=difference.asset, field=difference.field)
    return found


async def create_events(js: JetStreamContext) -> None:
    """Create EVENTS, which a restart takes; whoever finds it missing does so.

    Does nothing when it is there. Raises the errors of nats-py.
    """
    await js.add_stream(next(c for c in streams.streams() if c.name == streams.EVENTS))


async def generation(js: JetStreamContext, stream: str) -> int:
    """The generation of a stream on the server."""
    return generation_of(await js.stream_info(stream))


def generation_of(info: StreamInfo) -> int:
    """The stream's creation time in ms: a recreated stream restarts its sequences (R4)."""
    if info.created is None:
        raise Drift(f"the server does not tell when stream {info.config.name} was created")
    return round(info.created.timestamp() * 1000)


async def _compare(
    js: JetStreamContext, domains: Iterable[str]
) -> list[tuple[Asset, list[Difference]]]:
    found = []
    for asset in assets.declared(domains):
        try:
            found.append((asset, await asset.compare(js)))
        except js_errors.NotFoundError:
            found.append((asset, [Difference(asset.name)]))
    return found


def _refuse(broken: list[Difference], remedy: str = "") -> None:
    if broken:
        raise Drift("; ".join(map(str, broken)) + remedy, assets=[d.asset for d in broken])


@contextmanager
def _clear_errors() -> Iterator[None]:
    try:
        yield
    except (js_errors.ServiceUnavailableError, js_errors.ServerError) as error:
        raise Unavailable(f"JetStream does not answer: {error.description}") from error
    except js_errors.APIError as error:
        raise Drift(f"JetStream refuses it: {error.description}") from error
    except (nats.errors.Error, OSError) as error:
        raise Unavailable("JetStream does not answer") from error
