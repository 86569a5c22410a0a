"""Models as the JSON text that asyncpg hands to jsonb parameters."""

from collections.abc import Sequence

from pydantic import BaseModel


def as_json(model: BaseModel | None) -> str | None:
    """JSON of a model, None of None."""
    return None if model is None else model.model_dump_json(exclude_none=True)


def as_json_list(models: Sequence[BaseModel]) -> str:
    """JSON array of models."""
    return f"[{','.join(m.model_dump_json(exclude_none=True) for m in models)}]"
