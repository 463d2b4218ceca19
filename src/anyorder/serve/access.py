"""Who may ask (`anyorder[serve]`): those with a key; where there is none, programs of this machine."""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Sequence
from pathlib import Path

from starlette.requests import Request

from anyorder.errors import UserError

SHORTEST_KEY = 8


class Access:
    """Checks requests. keys: any of these opens the server; none: no key is needed."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        self._keys = keys

    def refusal(self, request: Request) -> tuple[int, str] | None:
        """Status and reason if a request may not pass."""
        if not self._keys:
            host = request.headers.get("host", "").rpartition(":")
            name = (host[0] or host[2]) if not host[2].endswith("]") else "".join(host)
            # A page of another host that calls itself this machine (DNS rebinding) gives its own name here.
            if is_loopback(name.strip("[]")):
                return None
            return 403, f"host = {name[:60]!r}: without a key only this machine is answered"
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not given:
            return 401, "authorization: missing; this server needs Authorization: Bearer KEY"
        # All keys are compared, so that the time says nothing about which one is nearly right.
        matches = [hmac.compare_digest(key, given.strip().encode("utf-8", "replace")) for key in self._keys]
        return None if any(matches) else (401, "authorization: not a key of this server")


def is_loopback(host: str) -> bool:
    """Whether a host is this machine and nothing else."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def read_keys(path: Path) -> list[bytes]:
    """The keys in a file, one per line."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise UserError(f"--api-key-file {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UserError(f"--api-key-file {path}: not valid UTF-8") from None
    keys = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    if not keys:
        raise UserError(f"--api-key-file {path}: holds no key; allowed: one per line")
    for number, key in enumerate(keys, start=1):
        if len(key) < SHORTEST_KEY:
            raise UserError(f"--api-key-file {path}: key {number} is shorter than {SHORTEST_KEY} characters")
    return [key.encode() for key in keys]
