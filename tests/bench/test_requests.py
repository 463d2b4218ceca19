"""The checker of constraints, by tables; random requests, by laws."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anyorder.bench import requests

REFERENCE = st.lists(st.text(alphabet="abcä", min_size=1, max_size=4), min_size=2, max_size=12).map(" ".join)


@pytest.mark.parametrize(
    ("text", "request_", "satisfied"),
    [
        ("ein Hund.", {"must": ["hund"]}, 100),
        ("Hunde rennen", {"must": ["hund"]}, 0),
        ("Hunde rennen", {"must": ["hund|hunde"]}, 100),
        ("der der", {"must": ["der", "der"]}, 100),
        ("der", {"must": ["der", "der"]}, 50),
        ("a b", {"must": ["a", "b"], "in_order": True}, 100),
        ("b a", {"must": ["a", "b"], "in_order": True}, 200 / 3),
        ("Am Strand.", {"prefix": "Am"}, 100),
        ("am Strand.", {"prefix": "Am"}, 0),
        ("Am Strand.", {"suffix": "Strand."}, 100),
        ("Am Strand!", {"suffix": "Strand."}, 0),
        ("ein Hund rennt.", {"draft": "ein rennt."}, 100),
        ("ein Hund rennt weg.", {"draft": "ein rennt."}, 100),
        ("rennt ein.", {"draft": "ein rennt."}, 0),
        ("ein Köter", {"forbid": ["köter"]}, 0),
        ("ein Hund", {"forbid": ["köter"]}, 100),
        ("ein t-shirt", {"forbid": ["shirt"]}, 100),
        ("ein t-shirt", {"must": ["shirt"]}, 0),
    ],
)
def test_every_kind_of_constraint_is_counted(text: str, request_: dict[str, Any], satisfied: float) -> None:
    assert requests.percent_satisfied([text], [request_]) == pytest.approx(satisfied)


def test_without_constraints_there_is_no_percentage() -> None:
    assert requests.percent_satisfied(["a", "b"], [{}, {"must": []}]) is None


@pytest.mark.parametrize(
    ("text", "template", "fitting"),
    [
        ("ein Hund rennt.", "ein ___ rennt.", True),
        ("ein rennt.", "ein ___ rennt.", False),
        ("ein rennt.", "ein ___{0,} rennt.", True),
        ("eine Katze rennt!", "ein ___ rennt.", False),
        ("ein Hund rennt.", "ein ___{1} rennt.", True),
        ("ein Hund rennt.", "ein ___{2} rennt.", False),
        ("ein Hund, der bellt, rennt.", "ein ___{1,3} rennt.", True),
        ("ein rennt.", "ein ___{1,3} rennt.", False),
        ("ein a b c d rennt.", "ein ___{1,3} rennt.", False),
        ("ein a b c d rennt.", "ein ___{2,} rennt.", True),
        ("ein a b c d rennt.", "ein ___{,2} rennt.", False),
        ("a x b y c", "a ___ b ___{1} c", True),
        ("a x b c", "a ___ b ___{1} c", False),
    ],
)
def test_a_template_is_filled_at_its_blanks(text: str, template: str, fitting: bool) -> None:
    assert requests.fits(text, template) is fitting


@given(reference=REFERENCE, seed=st.integers(0, 99))
def test_a_reference_satisfies_every_request_made_from_it(reference: str, seed: int) -> None:
    random = np.random.default_rng(seed)
    words = requests.random_words(reference, random, most=4)
    for request in (
        {"must": words},
        {"must": requests.in_order_of(reference, words), "in_order": True},
        {"prefix": requests.first_third(reference)},
        {"suffix": requests.last_third(reference)},
        {"template": requests.blanked(reference, random)},
        {"template": requests.twice_blanked(reference, random)},
        {"draft": requests.thinned(reference, random)},
    ):
        assert requests.percent_satisfied([reference], [request]) == 100, request


def test_identifiers_are_the_names_of_a_line() -> None:
    line = "for name in self . names ( 'a b' , key = \"in\" ) :pass"
    assert requests.identifiers(line) == ["name", "self", "names", "key"]
