"""Devices, and the precision of matrix products on them."""

from __future__ import annotations

import subprocess
import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from anyorder.errors import UserError

HALF = {"bf16": torch.bfloat16, "fp16": torch.float16}


def pick_device(name: str) -> torch.device:
    """Get a device by name; auto is a GPU if there is one, otherwise the CPU."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.ones(1, device=device).tolist()  # fails for "meta", which holds no values
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0].split(". ")[0]
        raise UserError(
            f"device {name!r} can't be used here: {reason}; auto picks what is available"
        ) from None
    return device


def check_precision(precision: str, device: torch.device) -> None:
    """Refuse a precision that the device doesn't support, before any work is done."""
    if precision == "fp16" and device.type == "cpu":
        raise UserError('train.precision = "fp16" needs a GPU; allowed on a CPU: fp32, bf16')
    if precision == "bf16" and device.type == "cpu" and not multiplies_in_bf16():
        raise UserError('train.precision = "bf16": this CPU can\'t multiply in bf16; use fp32')
    if precision == "bf16" and device.type == "cuda" and not torch.cuda.is_bf16_supported():
        raise UserError('train.precision = "bf16": this GPU can\'t compute in bf16; allowed: fp32, fp16')


def in_precision(precision: str, device: torch.device) -> AbstractContextManager[Any]:
    """Context manager for matrix products in the given precision."""
    return torch.autocast(device.type, dtype=HALF[precision]) if precision in HALF else nullcontext()


def multiplies_in_bf16() -> bool:
    """Whether this CPU supports bf16. Tried in another process, because some virtual CPUs crash instead."""
    program = "import torch; a = torch.ones(64, 64, dtype=torch.bfloat16); (a @ a).sum()"
    return subprocess.run([sys.executable, "-c", program], capture_output=True, check=False).returncode == 0
