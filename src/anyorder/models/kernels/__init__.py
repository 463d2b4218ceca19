"""Optional speed-ups for CPUs. Each has a plain twin, and tests hold the two equal.

| module | what it does | plain twin |
|---|---|---|
| `packed` | linear layers laid out ahead by oneDNN, or with weights in eight bits | `nn.Linear` |
| `vocabulary` | the best words without log p of all others | `top_choices` of a log-softmax |
| `training` | dropout from random bytes; log-softmax with its gradient in place | `nn.Dropout`, autograd |
| `malloc` | memory that a process reuses instead of returning it | the default allocator |

The environment variable `ANYORDER_KERNELS=plain` turns them off, to debug or to compare. Weights in eight
bits are then still available where they are asked for.
"""

from __future__ import annotations

import os


def enabled() -> bool:
    """Whether the speed-ups are used."""
    return os.environ.get("ANYORDER_KERNELS", "fast") != "plain"
