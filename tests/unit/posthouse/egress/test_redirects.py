"""The guard against requests into the private network: nothing reaches the private server.

The server listens at two addresses, of which the guard takes one for public.
"""

from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from posthouse.egress.http import HttpEgress
from posthouse.egress.redirects import MAX_REDIRECTS, Arrival, TooManyRedirects, follow
from posthouse.egress.targets import Answer, Refused, Request, Target
from posthouse.errors import PosthouseError, Unavailable
from tests.support.web import NO_TRUST, PRIVATE, PUBLIC, Names, WebServer, pretend, serving

# With {port} of the server, which would answer at every private address.
INTO_THE_PRIVATE_NETWORK = [
    "http://127.0.0.1:{port}/secret",
    "http://127.0.0.1.:{port}/secret",
    "http://127.1:{port}/secret",
    "http://127.0.1:{port}/secret",
    "http://2130706433:{port}/secret",
    "http://0x7f000001:{port}/secret",
    "http://0x7f.0.0.1:{port}/secret",
    "http://0177.0.0.1:{port}/secret",
    "http://017700000001:{port}/secret",
    "http://0:{port}/secret",
    "http://0.0.0.0:{port}/secret",
    "http://127.255.255.254:{port}/secret",
    "http://%31%32%37.0.0.1:{port}/secret",
    "http://[::1]:{port}/secret",
    "http://[::]:{port}/secret",
    "http://[0:0:0:0:0:0:0:1]:{port}/secret",
    "http://[::ffff:127.0.0.1]:{port}/secret",
    "http://[::ffff:7f00:1]:{port}/secret",
    "http://[::127.0.0.1]:{port}/secret",
    "http://[64:ff9b::127.0.0.1]:{port}/secret",
    "http://[64:ff9b::7f00:1]:{port}/secret",
    "http://[2002:7f00:1::]:{port}/secret",
    "http://[fe80::1]:{port}/secret",
    "http://[fc00::1]:{port}/secret",
    "http://169.254.169.254/latest/meta-data/",
    "http://[::ffff:169.254.169.254]/latest/meta-data/",
    "http://[fd00:ec2::254]/latest/meta-data/",
    "http://2852039166/latest/meta-data/",
    "http://100.100.100.200/latest/meta-data/",
    "http://100.64.0.1/",
    "http://10.0.0.1/",
    "http://172.16.0.1/",
    "http://192.168.1.1/",
    "http://192.0.0.1/",
    "http://198.18.0.1/",
    "http://224.0.0.1/",
    "http://255.255.255.255/",
    "http://localhost:{port}/secret",
    "http://localhost.:{port}/secret",
    "http://LOCALHOST:{port}/secret",
    "http://inside.test:{port}/secret",
    "http://INSIDE.test:{port}/secret",
    "http://１２７.0.0.1:{port}/secret",
    "http://127。0。0。1:{port}/secret",
    "http://①②⑦.0.0.1:{port}/secret",
    "http://site.test@127.0.0.1:{port}/secret",
    "http://site.test:80@127.0.0.1:{port}/secret",
    "http://127.0.0.1:{port}\\@site.test/secret",
    "http://site.test#@127.0.0.1:{port}/secret/../..",
    "http://127.0.0.1:{port}#@site.test/",
    "//127.0.0.1:{port}/secret",
    "\\\\127.0.0.1:{port}\\secret",
    "https://127.0.0.1:{port}/secret",
    "http://[127.0.0.1]:{port}/secret",
    "http://[::1%25lo]:{port}/secret",
    "http:127.0.0.1:{port}/secret",
    "http://[",
    "http:///127.0.0.1:{port}/secret",
]
NO_TARGET = [
    "file:///etc/passwd",
    "file://localhost/etc/passwd",
    "gopher://inside.test:6379/_FLUSHALL",
    "ftp://inside.test/",
    "dict://inside.test:11211/stats",
    "ldap://inside.test/",
    "data:text/html,<h1>x</h1>",
    "javascript:alert(1)",
    "jar:http://inside.test!/",
    "ws://inside.test/",
    "unix:/run/docker.sock",
    "http://site.test:0/",
    "http://site.test:65536/",
    "http://site.test:99999/",
    "http://site.test:80:80/",
    "http://site.test:abc/",
    "http://site.test:-1/",
    "http://user:secret@site.test/",
    "http://",
    "https://",
    "http://?",
    "http://site.test\r\nHost: inside.test/",
    "http://\x00/",
]
LIMIT = 10_000


@pytest.fixture
async def web(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[WebServer]:
    pretend(monkeypatch)
    async with serving() as running:
        running.answers["/secret"] = PlainTextResponse("the secret")
        yield running


def names() -> Names:
    return Names(
        site_test=[PUBLIC], other_test=[PUBLIC], inside_test=[PRIVATE], localhost=[PRIVATE]
    )


def parse(url: str) -> Target:
    return Target.parse(url, allow_http=True, timeout_s=5.0)


async def get(url: str, resolver: Names | None = None, **headers: str) -> Arrival:
    async with HttpEgress(resolver or names(), NO_TRUST) as egress:
        return await follow(egress, Request(parse(url), headers), parse, LIMIT)


def leading(url: str, status: int = 302) -> Response:
    """A redirect with the header as it is; Starlette would quote it."""
    return Response(status_code=status, headers={"location": url})


async def test_no_url_leads_inside(web: WebServer) -> None:
    for url in INTO_THE_PRIVATE_NETWORK:
        await _goes_nowhere(url.format(port=web.port))
        assert PRIVATE not in [seen.address for seen in web.seen], url


@pytest.mark.parametrize("url", NO_TARGET)
def test_what_is_no_target(url: str) -> None:
    with pytest.raises(Refused) as error:
        parse(url)
    assert "secret" not in error.value.message


async def test_no_redirect_leads_inside(web: WebServer) -> None:
    for url in (*INTO_THE_PRIVATE_NETWORK, *NO_TARGET):
        location = url.format(port=web.port).replace("\r\n", "%0d%0a").replace("\x00", "%00")
        redirect = Response(status_code=302)
        redirect.raw_headers.append((b"location", location.encode()))
        web.answers["/start"] = redirect
        web.seen.clear()
        await _goes_nowhere(f"http://site.test:{web.port}/start")
        assert web.seen[0].path == "/start"
        assert PRIVATE not in [seen.address for seen in web.seen], url


async def _goes_nowhere(url: str) -> None:
    """It fails in a way that callers know, or it stays outside."""
    try:
        found = await get(url)
    except PosthouseError:
        return
    assert b"the secret" not in found.answer.body, url


async def test_a_redirect_to_metadata_says_why_it_stops(web: WebServer) -> None:
    web.answers["/start"] = leading("http://169.254.169.254/latest/meta-data/")
    with pytest.raises(Refused, match=r"it redirects to http://169\.254.*private address") as error:
        await get(f"http://site.test:{web.port}/start")
    assert error.value.details == {"private": True}


async def test_a_name_that_changes_its_answer_is_asked_once(web: WebServer) -> None:
    web.answers["/"] = PlainTextResponse("outside")
    changing = Names(rebind_test=[PUBLIC, PRIVATE])
    found = await get(f"http://rebind.test:{web.port}/", changing)
    assert (found.answer.body, changing.asked) == (b"outside", ["rebind.test"])
    assert [seen.address for seen in web.seen] == [PUBLIC]


async def test_a_name_that_changes_its_answer_is_checked_at_each_hop(web: WebServer) -> None:
    web.answers["/start"] = leading("/secret")
    with pytest.raises(Refused, match="private"):
        await get(f"http://rebind.test:{web.port}/start", Names(rebind_test=[PUBLIC, PRIVATE]))
    assert [seen.address for seen in web.seen] == [PUBLIC]


async def test_redirects_are_followed(web: WebServer) -> None:
    web.answers |= {
        "/a": leading("b?x=1#part", 301),
        "/b": leading(f"//other.test:{web.port}/c/d", 307),
        "/c/d": leading("../%E7%AB%AF", 308),
        "/端": PlainTextResponse("here"),
    }
    found = await get(f"http://site.test:{web.port}/a")
    assert found.answer.body == b"here"
    assert found.url == f"http://other.test:{web.port}/%E7%AB%AF"
    assert web.seen[1].query == {"x": "1"}


@pytest.mark.parametrize(("redirects", "arrives"), [(MAX_REDIRECTS, True), (20, False)])
async def test_the_number_of_redirects_is_limited(
    web: WebServer, redirects: int, arrives: bool
) -> None:
    for n in range(redirects):
        web.answers[f"/{n}"] = RedirectResponse(f"/{n + 1}")
    web.answers[f"/{redirects}"] = PlainTextResponse("here")
    url = f"http://site.test:{web.port}/0"
    if arrives:
        assert (await get(url)).answer.body == b"here"
        return
    with pytest.raises(TooManyRedirects):
        await get(url)
    assert len(web.seen) == MAX_REDIRECTS + 1


async def test_a_loop_ends(web: WebServer) -> None:
    web.answers["/loop"] = RedirectResponse("/loop")
    with pytest.raises(TooManyRedirects):
        await get(f"http://site.test:{web.port}/loop")


async def test_another_origin_does_not_get_secret_headers(web: WebServer) -> None:
    web.answers |= {
        "/a": leading("/b"),
        "/b": leading(f"http://other.test:{web.port}/c"),
        "/c": PlainTextResponse("here"),
    }
    secrets = {"authorization": "Bearer x", "cookie": "a=b", "x-subscription-token": "k"}
    await get(f"http://site.test:{web.port}/a", None, accept="text/html", **secrets)
    first, second, third = (seen.headers for seen in web.seen)
    assert secrets.items() <= first.items()
    assert secrets.items() <= second.items()
    assert not secrets.keys() & third.keys()
    assert third["accept"] == "text/html"


async def test_no_proxy_from_the_environment(
    web: WebServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{web.port}")
    web.answers["/"] = PlainTextResponse("here")
    await get(f"http://site.test:{web.port}/")
    assert [seen.address for seen in web.seen] == [PUBLIC]


@given(st.text(st.characters(codec=None), max_size=60))
def test_any_text_is_a_target_or_refused(text: str) -> None:
    for url in (text, f"http://{text}", f"https://site.test{text}", f"http://{text}@127.0.0.1/"):
        try:
            parse(url)
        except Refused:
            continue


@given(st.text(st.characters(max_codepoint=255), max_size=60))
async def test_any_location_is_followed_or_an_error_of_ours(location: str) -> None:
    class Redirecting:
        """Redirects once."""

        def __init__(self) -> None:
            self.answers = [Answer(302, {"location": location}), Answer(200, {})]

        async def ask(self, request: Request, max_bytes: int) -> Answer:
            return self.answers.pop(0)

    start = Request(parse("http://site.test/a/b?c"))
    with suppress(Refused):
        await follow(Redirecting(), start, parse, LIMIT)


async def test_a_name_without_address(web: WebServer) -> None:
    with pytest.raises(Unavailable, match="no address"):
        await get("http://nowhere.test/")
