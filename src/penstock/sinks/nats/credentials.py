"""How a client of NATS proves who it is."""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from penstock.errors import TargetRefused
from penstock.secret import Secret

_BLOCK = re.compile(r"-{3,}BEGIN [^-]*-{3,}\s*([^\s-]+)\s*-{3,}END [^-]*-{3,}")
_SEED_BYTES = 36  # two of the kind, 32 of the seed, two of the checksum


@dataclass(frozen=True)
class Credentials:
    """How the client logs in. `file`: a `.creds` file with a JWT and the seed of a key, or a file with only
    the seed (an NKey)."""

    user: str
    password: Secret
    token: Secret
    file: Path | None

    def fields(self, nonce: str) -> dict[str, str]:
        """The fields with which the client logs in. They contain secrets as text."""
        if self.file is not None:
            return self._signed(self.file, nonce)
        found = {"user": self.user, "pass": self.password.reveal(), "auth_token": self.token.reveal()}
        return {name: value for name, value in found.items() if value}

    def _signed(self, file: Path, nonce: str) -> dict[str, str]:
        try:
            text = file.read_text()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is no text"
            raise TargetRefused(
                f"The credentials in {file} cannot be read: {reason}.", hint="Correct `sink.credentials`."
            ) from None
        blocks = _BLOCK.findall(text)
        jwt, seed = (blocks[0], blocks[1]) if len(blocks) > 1 else ("", blocks[0] if blocks else text.strip())
        key, public = _key_of(seed, file)
        signature = base64.urlsafe_b64encode(key.sign(nonce.encode())).rstrip(b"=").decode()
        return {"sig": signature, **({"jwt": jwt} if jwt else {"nkey": public})}


def _key_of(seed: str, file: Path) -> tuple[Ed25519PrivateKey, str]:
    """The private key of a seed, and the public one as text."""
    try:
        raw = base64.b32decode(seed + "=" * (-len(seed) % 8))
    except (binascii.Error, ValueError):
        raw = b""
    if len(raw) != _SEED_BYTES or binascii.crc_hqx(raw[:-2], 0) != int.from_bytes(raw[-2:], "little"):
        raise TargetRefused(
            f"The file {file} has no seed of a key of NATS.",
            hint="`sink.credentials` names a .creds file, or a file with the seed of an NKey (SU…).",
        )
    key = Ed25519PrivateKey.from_private_bytes(raw[2:34])
    public = bytes([(raw[0] & 7) << 5 | raw[1] >> 3])
    public += key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    public += binascii.crc_hqx(public, 0).to_bytes(2, "little")
    return key, base64.b32encode(public).rstrip(b"=").decode()
