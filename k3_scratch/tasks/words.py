"""Random words for `copy` and `reverse`."""

SHORTEST_WORD, LONGEST_WORD = 3, 20


def draw_word(rng):
    """3 to 20 lower-case letters, every length and every letter equally likely.

    >>> import numpy as np
    >>> draw_word(np.random.default_rng(60))
    'abzwoz'
    """
    size = int(rng.integers(SHORTEST_WORD, LONGEST_WORD + 1))
    return (rng.random(size) * 26 + ord("a")).astype("uint8").tobytes().decode("ascii")
