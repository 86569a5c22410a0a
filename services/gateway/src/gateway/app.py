"""The HTTP application."""

from collections.abc import Mapping

from fastapi import Depends, FastAPI

from gateway import problems, webhooks
from gateway.auth import Door
from gateway.handlers import Backend, build_router
from gateway.openapi import Application
from gateway.ports import Channel
from posthouse.health import Health
from posthouse.settings import Settings


def build_app(
    settings: Settings,
    health: Health,
    backend: Backend | None = None,
    channels: Mapping[str, Channel] | None = None,
) -> FastAPI:
    """The application; without a backend its routes answer 503 until ``connect`` is called."""
    # The interactive pages load their scripts from elsewhere; the schema itself is served.
    app = Application(
        title="Posthouse gateway", docs_url=None, redoc_url=None, redirect_slashes=False
    )
    app.state.backend = backend
    app.state.channels = channels or {}
    app.router.routes.extend(health.routes())
    app.include_router(build_router(), dependencies=[Depends(Door(settings))])
    app.include_router(webhooks.build_router())
    problems.install(app)
    return app


def connect(app: FastAPI, backend: Backend) -> None:
    """Let the routes work."""
    app.state.backend = backend
