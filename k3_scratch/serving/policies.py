"""At which block edges is a KDA state kept? Each policy answers for one edge.

    policy(edge, turns, last, block) -> bool

    edge     tokens before it, a multiple of block
    turns    ends of the turns known so far, in tokens, in any order
    last     True when the text is finished and this is its last edge
    block    tokens in a block

A state is there only while the text runs past the edge: what is not kept then can be had again only by computing.
"""


def at_turns(edge, turns, last, block):
    """The last edge in each turn: where a conversation goes on, branches, or shares its beginning with others.

    >>> [edge for edge in range(4, 24, 4) if at_turns(edge, (9, 16), False, 4)]
    [8, 16]
    """
    return last or any(0 <= turn - edge < block for turn in turns)       # last: the answer's own last token is not fed


def every(tokens):
    """A policy: all multiples of `tokens`, whatever the text is. Raises ValueError for less than 1.

    >>> [edge for edge in range(4, 24, 4) if every(8)(edge, (), False, 4)]
    [8, 16]
    """
    if tokens < 1:
        raise ValueError(f"every: tokens must be at least 1, but {tokens} came")
    return lambda edge, turns, last, block: edge % tokens == 0


def at_the_end(edge, turns, last, block):
    """Only the last edge of the finished text: enough for a conversation that goes on and does nothing else."""
    return last


def either(*policies):
    """A policy: what any of these would keep."""
    return lambda *question: any(policy(*question) for policy in policies)
