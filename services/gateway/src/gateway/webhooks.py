"""The route ``POST /webhooks/{channel}/{bot}``: platforms bring messages here.

It asks for no admin token: each channel verifies the signatures of its platform.
"""

from collections.abc import Mapping

import structlog
from fastapi import APIRouter, Depends, HTTPException, Request, Response

from gateway import intake, openapi
from gateway.handlers import backend, correlated
from gateway.ports import Channel
from gateway.receiving import Received, Receiver, WebhookRequest
from posthouse.errors import PermanentError
from posthouse.settings import BotSettings

log = structlog.get_logger(__name__)


async def post_webhook(request: Request, channel: str, bot: str = "") -> Response:
    """Take what a platform posts; 200 means that its messages are stored and will be answered."""
    receiver = find(request.app.state.channels, channel, bot)
    body = await intake.read_body(request)
    given = WebhookRequest(dict(request.headers), body, dict(request.query_params))
    received = _received(receiver, bot, given)
    inbound = (await backend(request)).inbound
    for message in received.messages:
        await inbound.publish(intake.subject_of(message), message)
    return Response(received.answer, media_type=received.media_type)


def find(channels: Mapping[str, Channel], name: str, bot: str) -> Receiver:
    """The channel of a path; ``''`` is its default bot. Raises HTTPException."""
    found = channels.get(BotSettings(bot=bot).domain(name))
    # The name is compared too: "webhook+shop" is a domain and no channel.
    if not isinstance(found, Receiver) or found.name != name:
        raise HTTPException(404, "no bot receives webhooks here; see channels in posthouse.yaml")
    return found


def _received(receiver: Receiver, bot: str, request: WebhookRequest) -> Received:
    try:
        received = receiver.receive(request)
        for message in received.messages:
            intake.refuse_what_agents_would(message)
    except PermanentError as error:
        log.info("webhook.refused", channel=receiver.name, bot=bot, code=error.code)
        raise
    return received


def build_router() -> APIRouter:
    """The routes under ``/webhooks``."""
    router = APIRouter(prefix="/webhooks", dependencies=[Depends(correlated)])
    for path in ("/{channel}", "/{channel}/{bot}"):
        router.add_api_route(
            path,
            post_webhook,
            methods=["POST"],
            response_model=None,
            responses=openapi.errors(*openapi.ERRORS),
            openapi_extra=openapi.json_body({"description": "what the platform of the bot posts"}),
        )
    return router
