"""Distributed training: the processes that torchrun started, or a single one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as distributed
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from anyorder.errors import UserError
from anyorder.system.devices import pick_device


@dataclass(frozen=True)
class Processes:
    """This process among those that train together, and its device."""

    rank: int
    count: int
    device: torch.device

    @property
    def first(self) -> bool:
        """Whether this process reports, validates and writes files."""
        return self.rank == 0

    def wrap(self, module: nn.Module) -> nn.Module:
        """Average gradients over all processes."""
        if self.count == 1:
            return module
        device_ids = [self.device] if self.device.type == "cuda" else None
        return DistributedDataParallel(module, device_ids=device_ids)

    def total(self, values: Tensor) -> Tensor:
        """Sum values over all processes, in place."""
        if self.count > 1:
            distributed.all_reduce(values)
        return values

    def agree(self, decision: bool) -> bool:
        """Broadcast the first process's decision; the others wait for it."""
        if self.count == 1:
            return decision
        shared = torch.tensor([int(decision)], device=self.device)
        distributed.broadcast(shared, src=0)
        return bool(shared.item())

    def wait(self) -> None:
        """Wait until all processes get here."""
        if self.count > 1:
            distributed.barrier()

    def all_have(self, number: int) -> bool:
        """Whether a number is the same in all processes."""
        if self.count == 1:
            return True
        both = torch.tensor([number, -number], device=self.device)
        distributed.all_reduce(both, op=distributed.ReduceOp.MAX)
        return int(both[0]) == -int(both[1])

    def any(self, flag: bool) -> bool:
        """Whether a flag is set in any process."""
        return bool(self.total(torch.tensor([int(flag)], device=self.device)).item())


def _lost_another(error: RuntimeError) -> bool:
    """Whether a collective operation failed, which is what the others notice when a process dies."""
    return isinstance(error, distributed.DistError) or any(name in str(error) for name in ("gloo", "NCCL"))


@contextmanager
def processes(device: str) -> Iterator[Processes]:
    """Join the process group if torchrun started several processes, and leave it at the end."""
    count = int(os.environ.get("WORLD_SIZE", "1"))
    if count == 1:
        yield Processes(rank=0, count=1, device=pick_device(device))
        return
    local = int(os.environ["LOCAL_RANK"])
    picked = pick_device(device)
    if picked.type == "cuda":
        picked = torch.device("cuda", local)
        torch.cuda.set_device(picked)
    # The others wait while the first one validates, however long that takes. torchrun ends all if one dies.
    distributed.init_process_group("nccl" if picked.type == "cuda" else "gloo", timeout=timedelta(days=1))
    joined = Processes(rank=distributed.get_rank(), count=count, device=picked)
    try:
        yield joined
        joined.wait()  # a process that leaves while others still work may be aborted
    except RuntimeError as error:
        if not _lost_another(error):
            raise
        raise UserError(
            f"process {joined.rank + 1} of {count}: another process has ended, so this one stops too; train "
            "--resume goes on from the last checkpoint"
        ) from None
    finally:
        distributed.destroy_process_group()
