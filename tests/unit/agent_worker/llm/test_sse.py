"""Server-sent events, from bytes."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_worker.llm import sse
from agent_worker.llm.errors import IncompleteAnswer
from agent_worker.llm.sse import ServerEvent, SseParser

TEXT = 'data: {"a": "中文🙂\u2028\u0085x"}\n\n: ping\n\nevent: error\ndata:b\ndata: c\n\ndata: last'
EVENTS = [
    ServerEvent("message", '{"a": "中文🙂\u2028\u0085x"}'),
    ServerEvent("error", "b\nc"),
    ServerEvent("message", "last"),
]


def parse(*chunks: bytes) -> list[ServerEvent]:
    parser = SseParser()
    found = [event for chunk in chunks for event in parser.feed(chunk)]
    return found + parser.close()


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"])
def test_every_cut_gives_the_same_events(end: str, bom: bytes) -> None:
    body = bom + TEXT.replace("\n", end).encode()

    assert parse(body) == EVENTS
    assert parse(*(bytes([byte]) for byte in body)) == EVENTS
    for cut in range(len(body) + 1):
        assert parse(body[:cut], body[cut:]) == EVENTS


LINES = st.lists(
    st.sampled_from(["data: x", "data:", "data", ":c", "", "event: e", "id: 1", "中文", "data:  y"])
)
ENDS = st.sampled_from(["\n", "\r\n", "\r"])


@given(st.lists(st.tuples(LINES, ENDS), max_size=5), st.data())
def test_any_stream_is_read_alike_however_it_is_cut(
    parts: list[tuple[list[str], str]], data: st.DataObject
) -> None:
    body = "".join(line + end for lines, end in parts for line in lines).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=6)))
    borders = [0, *cuts, len(body)]
    chunks = [body[a:b] for a, b in itertools.pairwise(borders)]

    assert parse(*chunks) == parse(body)


@pytest.mark.parametrize(
    ("body", "events"),
    [
        (b"", []),
        (b"\xef\xbb", []),
        (b"\n\n\n", []),
        (b": only a comment\n\n", []),
        (b"event: ping\n\n", []),
        (b"retry: 5\nid: 7\ndata: x\n\n", [("message", "x")]),
        (b"data\n\n", [("message", "")]),
        (b"data: \xff\n\n", [("message", "�")]),
    ],
)
def test_odd_streams(body: bytes, events: list[tuple[str, str]]) -> None:
    assert parse(body) == events


def test_an_event_without_end_does_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "MAX_EVENT_BYTES", 100)
    for endless in (b"x" * 40, b"data: " + b"x" * 40 + b"\n"):
        parser = SseParser()
        for _ in range(2):
            parser.feed(endless)
        with pytest.raises(IncompleteAnswer):
            parser.feed(endless)
