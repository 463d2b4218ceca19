"""What fits into memory: long sources and targets are refused before the work begins."""

from __future__ import annotations

import torch

from anyorder import config
from anyorder.config.model import Shape
from anyorder.errors import UserError
from anyorder.system.memory import available

FLOAT_BYTES = 4
GIGABYTE = 1e9


def encoding_bytes(model: config.Model, *, source: int) -> int:
    """Roughly the most memory that encoding one source takes: attention grows with its square."""
    distances = 2 * model.clip + 1 if model.encoder_positions == "relative" else 0
    attention = source**2 * (distances + 4 * model.heads)
    return FLOAT_BYTES * (attention + source * (model.hidden + 8 * model.width))


def scoring_bytes(model: config.Model, shape: Shape, *, source: int, target: int) -> int:
    """Roughly the most memory that scoring one target takes, with the scores of all words at each step."""
    steps = target + 2
    attention = steps**2 * (2 * model.steps_back + 1 + 4 * model.heads + 4) + steps * source * 2 * model.heads
    return FLOAT_BYTES * (
        attention + steps * (model.hidden + 8 * model.width) + 3 * steps * shape.target_vocabulary
    )


def check_fits(needed: int, *, source: int, target: int, device: torch.device) -> None:
    """Refuse work that needs more bytes than are free. source, target: the longest, in tokens."""
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else available()
    if free is not None and needed > free:
        raise UserError(
            f"a source of {source:,} and a target of {target:,} tokens need about {needed / GIGABYTE:,.1f} "
            f"GB of memory, but {free / GIGABYTE:,.1f} GB are free; decode.max_source, decode.max_length and "
            "decode.max_target bound them"
        )
