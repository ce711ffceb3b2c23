"""Changes the values of one column: masks, hashes, tokens. Pure."""

from __future__ import annotations

import base64
import hmac
from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from penstock.model.transforms import HIDDEN, Mask, MaskPart

TOKEN_BYTES = 16
"""A token has so many bytes of the digest. With 16, no two values of a table will ever have the same."""


def hashed(array: pa.Array, key: bytes) -> pa.Array:
    """HMAC-SHA256 of each value, in hexadecimal digits."""
    return _each(array, lambda value: hmac.digest(key, value, "sha256").hex())


def tokenized(array: pa.Array, key: bytes) -> pa.Array:
    """A token for each value: 128 bits of the HMAC of a text that `hashed` never hashes for the value."""

    def token(value: bytes) -> str:
        digest = hmac.digest(key, b"\x00token\x00" + value, "sha256")[:TOKEN_BYTES]
        return "tok_" + base64.b32encode(digest).decode("ascii").rstrip("=").lower()

    return _each(array, token)


def masked(array: pa.Array, mask: Mask) -> pa.Array:
    """The values as `mask` says. The type stays, and NULL stays NULL. Raises `ValueError` if the type has no
    such value."""
    if isinstance(mask, MaskPart):
        if not _is_text(array.type):
            raise ValueError(f"only a text can be masked in part, not {array.type}")
        return _each(array, lambda value: _part(value.decode(), mask))
    if mask is None or (mask == HIDDEN and not _is_text(array.type)):
        return pa.nulls(len(array), array.type)
    try:
        constant = pa.scalar(mask).cast(array.type)
    except pa.ArrowException:
        raise ValueError(f"a column of type {array.type} cannot have the value of `mask`") from None
    found = pc.if_else(array.is_valid(), constant, pa.scalar(None, array.type))
    return found if len(array) else pa.nulls(0, array.type)


def _part(text: str, mask: MaskPart) -> str:
    hidden = len(text) - mask.keep_first - mask.keep_last
    if hidden <= 0:
        return mask.character * len(text)
    end = text[len(text) - mask.keep_last :]
    return text[: mask.keep_first] + mask.character * hidden + end


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _each(array: pa.Array, change: Callable[[bytes], str]) -> pa.Array:
    """A text for each value, from the bytes of its text. Equal values are changed once."""
    encoded = array.dictionary_encode() if not pa.types.is_dictionary(array.type) else array
    values = encoded.dictionary
    if not pa.types.is_binary(values.type):
        values = values.cast(pa.string()).cast(pa.binary())
    changed = [None if value is None else change(value) for value in values.to_pylist()]
    return pc.take(pa.array(changed, pa.string()), encoded.indices)
