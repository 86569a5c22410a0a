"""Search services as their documentation has them: SearXNG, Brave and Tavily, and their errors."""

from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from tests.support.web import WebServer

KEY = "the-key"


def serve_searxng(
    web: WebServer, results: list[dict[str, Any]], formats: str = "html json"
) -> None:
    """``GET /search?q=&format=json``; a format that is not switched on is refused."""

    async def search(request: Request) -> Response:
        if request.query_params.get("format") != "json":
            return HTMLResponse("<h1>Forbidden</h1>", 403)
        if not request.query_params.get("q"):
            return HTMLResponse("no query", 400)
        query = request.query_params["q"]
        return JSONResponse(
            {
                "query": query,
                "number_of_results": 0,
                "results": results,
                "answers": [],
                "suggestions": [],
                "unresponsive_engines": [["bing", "timeout"]],
            }
        )

    web.answers["/search"] = search


def serve_brave(web: WebServer, results: list[dict[str, Any]]) -> None:
    """``GET /res/v1/web/search``; ``web`` is missing when there are no results."""

    async def search(request: Request) -> Response:
        if request.headers.get("x-subscription-token") != KEY:
            error = {"status": 422, "code": "SUBSCRIPTION_TOKEN_INVALID", "detail": "not valid"}
            return JSONResponse({"type": "ErrorResponse", "error": error}, 422)
        if not 1 <= int(request.query_params.get("count", "20")) <= 20:
            return JSONResponse({"type": "ErrorResponse"}, 422)
        answer = {"type": "search", "query": {"original": request.query_params["q"]}}
        found = {"web": {"type": "search", "results": results}} if results else {}
        return JSONResponse({**answer, **found})

    web.answers["/res/v1/web/search"] = search


def serve_tavily(web: WebServer, results: list[dict[str, Any]]) -> None:
    """``POST /search`` with a bearer token."""

    async def search(request: Request) -> Response:
        if request.headers.get("authorization") != f"Bearer {KEY}":
            detail = {"error": "Unauthorized: missing or invalid API key."}
            return JSONResponse({"detail": detail}, 401)
        asked = await request.json()
        return JSONResponse(
            {
                "query": asked["query"],
                "answer": None,
                "images": [],
                "results": results[: asked["max_results"]],
                "response_time": "1.2",
            }
        )

    web.answers["/search"] = search
