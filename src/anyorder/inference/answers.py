"""Answers as JSON: library, command line and server write the same bytes for the same question."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict

from anyorder.inference.hypothesis import Completion, Hypothesis

AnyWritten = TypeVar("AnyWritten", Hypothesis, Completion)


class Written(BaseModel, Generic[AnyWritten]):
    """What a model wrote for one source, best first.

    >>> import anyorder
    >>> from anyorder.inference.answers import Written
    >>> answer = anyorder.load("django-small").generate("x is None .")
    >>> Written(source="x is None .", hypotheses=answer).as_json()[:58]
    '{"source": "x is None .", "hypotheses": [{"text": "x = None'
    """

    model_config = ConfigDict(frozen=True)

    source: str | None
    hypotheses: Sequence[AnyWritten]

    def as_json(self) -> str:
        """The answer as one line of JSON."""
        return json_line({"source": self.source, "hypotheses": [asdict(one) for one in self.hypotheses]})


class Generated(Written[Hypothesis]):
    """The answer to a source."""


class Completed(Written[Completion]):
    """The answer to a source and a canvas."""


class Refused(BaseModel):
    """Why there is no answer."""

    model_config = ConfigDict(frozen=True)

    source: str | None
    error: str

    def as_json(self) -> str:
        """The refusal as one line of JSON."""
        return json_line({"source": self.source, "error": self.error})


def json_line(value: Any) -> str:  # noqa: ANN401
    """One line of JSON, as all parts of the project write it."""
    return json.dumps(value, ensure_ascii=False)
