"""Results of MCP tools as text for the model."""

import json

from mcp.types import (
    AudioContent,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

from agent_worker.tool import ToolError
from agent_worker.web.untrusted import mark


def shown(result: CallToolResult, source: str) -> str:
    """The text of a result, marked as a stranger's. Raises ToolError for one that failed."""
    content = "\n\n".join(_as_text(block) for block in result.content)
    if not content and result.structured_content is not None:
        content = json.dumps(result.structured_content, ensure_ascii=False)
    marked = mark(content or "(no output)", source)
    if result.is_error:
        raise ToolError(marked)
    return marked


def _as_text(block: ContentBlock) -> str:
    """Text as it is; of the rest what it is, since models of ours read text alone."""
    match block:
        case TextContent():
            return block.text
        case ImageContent() | AudioContent():
            return _stub(block.type, block.mime_type, block.data)
        case ResourceLink():
            return f"[resource {block.uri}, {block.mime_type or 'type unknown'}]"
        case EmbeddedResource(resource=resource):
            if isinstance(resource, TextResourceContents):
                return f"[resource {resource.uri}]\n{resource.text}"
            return _stub(f"resource {resource.uri}", resource.mime_type, resource.blob)


def _stub(what: str, mime_type: str | None, base64: str) -> str:
    size = len(base64) * 3 // 4 - base64[-2:].count("=")
    return f"[{what}, {mime_type or 'type unknown'}, {size:,} bytes]"
