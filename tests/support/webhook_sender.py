"""A program that sends signed webhooks. It shares no code with what is tested."""

import base64
import hashlib
import hmac

WHSEC = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OTHER = "whsec_" + base64.b64encode(b"another secret of 24 bytes").decode()
NOW = 1_700_000_000


def standard(
    body: bytes, secret: str = WHSEC, id: str = "msg_1", timestamp: int | str = NOW
) -> dict[str, str]:
    """The headers of Standard Webhooks."""
    encoded = secret.removeprefix("whsec_")
    key = base64.b64decode(encoded) if encoded != secret else secret.encode()
    content = f"{id}.{timestamp}.".encode() + body
    digest = base64.b64encode(hmac.new(key, content, hashlib.sha256).digest()).decode()
    return {
        "webhook-id": id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": f"v1,{digest}",
    }


def github(body: bytes, secret: str = WHSEC) -> dict[str, str]:
    """The header of GitHub."""
    digest = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    return {"x-hub-signature-256": f"sha256={digest}"}
