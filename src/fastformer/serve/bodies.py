"""What the bodies of all requests share: their texts are valid Unicode.

JSON can spell half a character (`"\\ud83d"`, an emoji that was cut), which neither a tokenizer nor a database takes.
"""

from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator

from fastformer.data.values import valid_unicode


class CleanBody(BaseModel):
    """The body of a request. Fields that it does not know are passed over, as other servers of these protocols do."""

    model_config = ConfigDict(extra="ignore")

    @model_validator(mode="before")
    @classmethod
    def _clean(cls, given: Any) -> Any:
        try:
            return with_valid_unicode(given)
        except RecursionError:
            raise ValueError("it is nested too deeply") from None


def with_valid_unicode(given: Any) -> Any:
    """A value of JSON with "?" for each half of a character in it."""
    if isinstance(given, str):
        return valid_unicode(given)
    if isinstance(given, list):
        return [with_valid_unicode(one) for one in given]
    if isinstance(given, dict):
        return {valid_unicode(name): with_valid_unicode(one) for name, one in given.items()}
    return given
