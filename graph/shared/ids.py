"""Content hashes: the external ids of everything in an index."""

from hashlib import blake2b


def content_id(*parts: str) -> str:
    """128-bit hash of the parts, as 32 hexadecimal digits; parts are length-prefixed, so ("a", "bc") ≠ ("ab", "c")."""
    digest = blake2b(digest_size=16)
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()
