"""The channel ``webhook``: programs send signed messages and get signed answers (docs/webhook.md).

A bot is a secret and, if answers are wanted, a URL to post them to.
"""

import time
from collections.abc import Callable, Sequence
from typing import Literal

from pydantic import Field, model_validator

from gateway import intake, signatures
from gateway.bots import configured
from gateway.channels._webhook_bot import WebhookBot
from gateway.egress import Answer, Egress, Target
from gateway.ports import Capabilities, Channel, Part
from gateway.receiving import BadSignature, NotAllowed, Received, WebhookRequest
from gateway.settings import MAX_CONVERSATION_ID_CHARACTERS
from gateway.signatures import Secret
from posthouse.address import Address
from posthouse.errors import BadMessage, PermanentError, TransientError
from posthouse.messages import InboundMessage, Media, OutboundMessage, Wire
from posthouse.settings import BotSettings, Settings

NAME = "webhook"

Clock = Callable[[], float]

# Not now, though the request is right: timed out, too early, too many.
RETRIED = frozenset({408, 425, 429})


class Body(Wire):
    """What a program posts."""

    id: str = ""
    sender: str = Field(min_length=1, max_length=MAX_CONVERSATION_ID_CHARACTERS)
    conversation: str = Field("", max_length=MAX_CONVERSATION_ID_CHARACTERS)
    sender_name: str = ""
    content: str = ""
    chat_type: Literal["p2p", "group"] = "p2p"
    media: tuple[Media, ...] = ()

    @model_validator(mode="after")
    def _consistent(self) -> "Body":
        if self.chat_type == "group" and not self.conversation:
            raise ValueError("a group needs a conversation")
        if any(item.url is None for item in self.media):
            raise ValueError("media needs a url")
        return self


class Stored(Wire):
    """The answer to a webhook."""

    message_id: str
    conversation: Address


class CallbackFailed(TransientError):
    """The callback answered that it cannot take the message now."""

    code = "callback_failed"


class Webhook:
    """One bot. Its first secret signs; all of them verify."""

    name = NAME
    # The receiver knows a repeat by the webhook-id.
    capabilities = Capabilities(idempotent=True)

    def __init__(
        self,
        bot: BotSettings,
        own: WebhookBot,
        secrets: Sequence[Secret],
        target: Target | None,
        egress: Egress,
        clock: Clock,
    ) -> None:
        self.domain = bot.domain(NAME)
        self._bot = bot
        self._own = own
        self._secrets = secrets
        self._target = target
        self._egress = egress
        self._clock = clock

    def receive(self, request: WebhookRequest) -> Received:
        """See Receiver."""
        delivery = self._verify(request)
        body = intake.read_json(request.body, Body)
        if self._bot.allow and body.sender not in self._bot.allow:
            raise NotAllowed()
        message = self._message(body, _message_id(body.id or delivery))
        stored = Stored(message_id=message.id, conversation=message.conversation)
        return Received((message,), stored.to_wire())

    def split(self, message: OutboundMessage) -> Sequence[Part]:
        """One part, however long."""
        return [Part(message.content, message.media)]

    async def send(self, message: OutboundMessage, part: Part, idempotency_key: str) -> None:
        """Post the message to the callback, if there is one; signed anew at each try."""
        if self._target is None:
            return
        body, now = message.to_wire(), self._clock()
        signed = signatures.sign(self._secrets[0], message.id, int(now), body)
        headers = {"content-type": "application/json", "user-agent": "Posthouse", **signed}
        _judge(await self._egress.post(self._target, headers, body), now)

    def _verify(self, request: WebhookRequest) -> str:
        """The id of the delivery."""
        schemes, headers = self._own.schemes, request.headers
        if "standard" in schemes and signatures.SIGNATURE in headers:
            now, window_s = self._clock(), self._own.window_s
            return signatures.verify_standard(request, self._secrets, now, window_s)
        if "github" in schemes and signatures.HUB_SIGNATURE in headers:
            return signatures.verify_github(request, self._secrets)
        wanted = {"standard": signatures.SIGNATURE, "github": signatures.HUB_SIGNATURE}
        names = " or ".join(wanted[scheme] for scheme in schemes)
        raise BadSignature(f"the request needs the header {names}")

    def _message(self, body: Body, id: str) -> InboundMessage:
        return InboundMessage(
            id=f"{NAME}:{self._bot.bot}:{id}",
            from_=Address.im(self.domain, body.sender),
            conversation=Address.im(self.domain, body.conversation or body.sender),
            chat_type=body.chat_type,
            sender_name=body.sender_name,
            content=body.content,
            media=body.media,
        )


def _message_id(given: str) -> str:
    if not given:
        raise BadMessage("the body needs an id, by which a repeat is known", reason="no_id")
    if not intake.is_id(given):
        raise BadMessage(f"id: it has {intake.ID_FORM}", reason="bad_id")
    return given


def _judge(answer: Answer, now_s: float) -> None:
    status = answer.status
    if 200 <= status < 300:
        return
    if status in RETRIED or status >= 500:
        failure = CallbackFailed(f"the callback answered {status}")
        failure.retry_after_s = answer.retry_after_s(now_s) or failure.retry_after_s
        raise failure
    if 300 <= status < 400:
        raise PermanentError(f"the callback answered {status}; redirects are not followed")
    raise PermanentError(f"the callback answered {status}")


def build(settings: Settings, egress: Egress, clock: Clock = time.time) -> list[Channel]:
    """The configured bots. Raises ConfigError that names the bot and the key."""
    return [
        Webhook(bot, own, own.secrets(place), own.target(place), egress, clock)
        for place, bot, own in configured(settings, NAME, WebhookBot)
    ]
