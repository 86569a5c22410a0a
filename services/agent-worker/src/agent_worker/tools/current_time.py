"""Tool ``current_time``: date and time in a time zone."""

from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from agent_worker.tool import Tool, ToolContext, ToolError, tool


@tool(
    "current_time",
    "The current date, weekday and time in a time zone.",
    {
        "type": "object",
        "properties": {
            "zone": {
                "type": "string",
                "description": "IANA name such as Asia/Shanghai or Europe/Berlin; default UTC",
            }
        },
        "additionalProperties": False,
    },
    access="read",
    timeout_s=5.0,
)
async def current_time(ctx: ToolContext, input: dict[str, Any]) -> str:
    """Read the clock."""
    name = input.get("zone") or "UTC"
    try:
        zone = ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ToolError(
            f"there is no time zone {name!r}. Use an IANA name such as Asia/Shanghai."
        ) from error
    now = datetime.now(zone)
    offset = "" if name == "UTC" else f" (UTC{now:%z})"
    return f"{now:%Y-%m-%d %H:%M:%S} {now:%A}, {name}{offset}"


def tools() -> list[Tool]:
    """What this file adds."""
    return [current_time]
