"""Errors: stable codes, and whether trying again can help. On the wire: ``test_rpc``."""

import inspect

import pytest

from posthouse import errors
from posthouse.errors import PermanentError, PosthouseError, TransientError

CLASSES = [
    cls for _, cls in inspect.getmembers(errors, inspect.isclass) if issubclass(cls, PosthouseError)
]


def test_codes_are_unique() -> None:
    assert len({cls.code for cls in CLASSES}) == len(CLASSES)


@pytest.mark.parametrize("cls", CLASSES)
def test_an_error_says_whether_to_try_again(cls: type[PosthouseError]) -> None:
    assert cls is PosthouseError or issubclass(cls, TransientError) != issubclass(
        cls, PermanentError
    )
    assert cls.retryable is issubclass(cls, TransientError)


@pytest.mark.parametrize("cls", CLASSES)
def test_an_error_has_a_text_and_fields(cls: type[PosthouseError]) -> None:
    assert cls().message == str(cls()) == inspect.cleandoc(cls.__doc__ or "").split("\n")[0]
    # Fields may have any name.
    error = cls("why", key="im.cli.local", message="field", self=1)
    assert (str(error), error.message) == ("why", "why")
    assert error.details == {"key": "im.cli.local", "message": "field", "self": 1}


@pytest.mark.parametrize("cls", [errors.AddressError, errors.BadMessage])
def test_what_models_validate_with_is_a_value_error(cls: type[PosthouseError]) -> None:
    """So that pydantic names the field it is about."""
    assert issubclass(cls, ValueError)
