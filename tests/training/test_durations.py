from __future__ import annotations

import pytest

from anyorder.training.estimate import duration


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.01234, "0.0123 s"),
        (119, "119 s"),
        (120, "2.0 min"),
        (5400, "90.0 min"),
        (7200, "2.0 hours"),
        (172_800, "2.0 days"),
        (200_000_000, "2,314.8 days"),
    ],
)
def test_a_span_of_time_is_said_in_its_own_unit(seconds: float, said: str) -> None:
    assert duration(seconds) == said
