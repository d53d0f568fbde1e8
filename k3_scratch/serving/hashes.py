"""Names of prefixes: each block's name is a hash of the name before it and of its own tokens.

    tokens      a b c d | e f g h | i j
    names          h1   |    h2   |          h1 = hash(abcd), h2 = hash(h1, efgh); what is left over has no name

Two texts share a name exactly where everything up to there is the same, so one look-up compares a whole prefix.
"""

import hashlib
from array import array


def block_hashes(tokens, block, extra=None):
    """The name of every whole block of `tokens`.                                  N tokens -> N // block names

    block    tokens in a block, at least 1
    extra    {position: bytes} of what stands behind a token besides its number, such as the picture at an image token

    >>> first, second = block_hashes([1, 2, 3, 4, 5], 2)
    >>> block_hashes([9, 2, 3, 4], 2)[1] == second
    False
    """
    if block < 1:
        raise ValueError(f"block_hashes: block must be at least 1, but {block} came")
    name, names = b"", []
    for start in range(0, len(tokens) - block + 1, block):
        hashed = hashlib.sha256(name)
        hashed.update(array("q", tokens[start:start + block]).tobytes())
        for position in range(start, start + block) if extra else ():
            if position in extra:                                        # its size too: no two ways to read the bytes
                hashed.update(array("q", [position, len(extra[position])]).tobytes() + extra[position])
        name = hashed.digest()
        names.append(name)
    return names
