"""What joining sublayers costs, from formulas: arithmetic and traffic over depth, for any configuration.

Chapter 06, section 7, derives them. Forms: "attention" in blocks, "full_attention", "hyper".
"""

from k3_scratch.accounting.flops import depth_sources, flops_per_token

FORMS = ("attention", "full_attention", "hyper")


def joining_flops(form, config, streams=4):
    """FLOPs of one token in everything that joins sublayers; the plain sum counts as none.              -> int

    A mix costs 6 D a source. Hyper-connections: the matrix that makes the weights, reading, writing and mixing n
    streams. ValueError for another form.
    """
    D, M, n = config.hidden_size, 2 * config.num_layers, streams
    if form == "attention":
        return 6 * D * sum(depth_sources(config))
    if form == "full_attention":
        return 6 * D * sum(range(2, M + 2))                              # the first has one source and passes it on
    if form == "hyper":
        return M * (2 * n * (n + 2) * n * D + 2 * (n + 2) * n * D) + 2 * n * n * D + 2 * n * D
    raise ValueError(f"form must be one of {', '.join(FORMS)}, but {form!r} came")


def traffic(form, config):
    """Vectors of D numbers that a sublayer reads and writes for a token in decoding; the plain sum moves 3.   -> float

    Blocks in two phases: the bank once a block, and five more. The full form reads all i + 1 sources. Hyper-connections
    with four streams: 34 (AttnRes, arXiv 2603.15031).
    """
    M = 2 * config.num_layers
    if form == "attention":
        return sum(range(1, -(-config.num_layers // config.attn_res_block_size) + 1)) / M + 5
    if form == "full_attention":
        return M / 2 + 1
    if form == "hyper":
        return 34.0
    raise ValueError(f"form must be one of {', '.join(FORMS)}, but {form!r} came")


def more_flops(form, config):
    """FLOPs of joining, as a share of all other FLOPs of a token.                                       -> float"""
    work = flops_per_token(config)
    return joining_flops(form, config) / (work.total - work.modules["depth_mixes"])


def more_traffic(form, config, flops_per_byte=300):
    """Time that the further traffic takes, as a share of the time of the arithmetic.                    -> float

    Assumes numbers of two bytes and a machine that does `flops_per_byte` FLOPs while it moves one byte.
    """
    vectors, one = traffic(form, config) - 3, 2 * config.hidden_size * flops_per_byte
    return vectors * one * 2 * config.num_layers / flops_per_token(config).total
