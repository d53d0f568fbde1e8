"""Kimi Delta Attention, C tokens at a time: the same numbers as the recurrence from a few matrix products a chunk.

With G_r = g_1 + ... + g_r inside the chunk and S the entering state, the value that token i really writes is
Vt_i = beta_i (v_i - what the decayed memory holds for k_i), and that memory is S and the earlier writes of the chunk:

    Vt_i = beta_i (v_i - (e^{G_i} k_i)^T S) - sum_{j<i} L_ij Vt_j,    L_ij = beta_i sum_c k_ic k_jc e^{G_ic - G_jc}

These are C linear equations with a unit lower triangular matrix. Solved once for the two parts of the right side:

    M = (I + L)^-1 diag(beta)     W = M (e^G * K)     U = M V     Vt = U - W S
    A_ij = sum_c q_ic k_jc e^{G_ic - G_jc}   (j <= i: the diagonal is kept, a token reads after its write)
    O = (e^G * Q) S + A Vt
    S <- diag(e^{G_C}) S + (e^{G_C - G} * K)^T Vt

Source: Kimi Linear, chunkwise form of KDA (WY representation and UT transform); K3 report, KDA.
"""

import numpy as np

from k3_scratch.reference.memory import as_float64, query_scale, start_state
from k3_scratch.shapes import check_shapes

# e^-750 is exactly 0 in float64, so a lower log-decay changes nothing but the rounding of the sums G. With the floor
# even -inf is safe, and the tokens after an all-forgetting one keep their small differences.
FLOOR = -750.0


def kda_chunk(q, k, v, g, beta, state=None, *, scale=None, chunk=None):
    """All tokens, chunk by chunk. Arguments, shapes and results as `kda_recurrent`.

    [..., T, H, K] x 2, [..., T, H, V], [..., T, H, K], [..., T, H], [..., H, K, V]
    -> o [..., T, H, V], state [..., H, K, V]

    q, k [..., T, H, K] of unit length; v [..., T, H, V]; g [..., T, H, K] log-decay <= 0 in nats a token;
    beta [..., T, H] in [0, 1]; state [..., H, K, V] or None (zeros); scale None = K^(-1/2), on q alone
    chunk  tokens a chunk, C; None = 16. T need not be a multiple: the last chunk is shorter.
    Raises ShapeError; ValueError when chunk is not a whole number above 0.
    """
    q, k, v, g, beta = as_float64(q, k, v, g, beta)
    sizes = check_shapes("kda_chunk", q=(q, "... T H K"), k=(k, "... T H K"), v=(v, "... T H V"),
                         g=(g, "... T H K"), beta=(beta, "... T H"))
    chunk = 16 if chunk is None else chunk
    if int(chunk) != chunk or chunk < 1:
        raise ValueError(f"kda_chunk: chunk must be a whole number of tokens, at least 1, but {chunk!r} came")
    S, scale = start_state("kda_chunk", state, k, v), query_scale(scale, sizes["K"])

    # Heads in front of tokens: then everything below is a matrix [C, ...] per head.
    q, k, v, g = (np.swapaxes(a, -3, -2) for a in (scale * q, k, v, np.maximum(g, FLOOR)))   # [..., H, T, K or V]
    beta = np.swapaxes(beta, -2, -1)                                             # [..., H, T]
    o = np.empty(v.shape)                                                        # [..., H, T, V]
    for start in range(0, sizes["T"], int(chunk)):
        part = slice(start, start + int(chunk))
        o[..., part, :], S = _one_chunk(q[..., part, :], k[..., part, :], v[..., part, :], g[..., part, :],
                                        beta[..., part], S)
    return np.swapaxes(o, -3, -2), S                                             # [..., T, H, V], [..., H, K, V]


def _one_chunk(q, k, v, g, beta, S):
    """q, k, g [..., H, C, K], v [..., H, C, V], beta [..., H, C], S [..., H, K, V] -> o [..., H, C, V], S"""
    C, K = k.shape[-2:]
    G = np.cumsum(g, axis=-2)                                                    # [..., H, C, K], never positive
    decay = np.exp(G)                                                            # from the chunk's start to each token

    # Mask first, then exponentiate: for j > i the difference is positive and would overflow. Splitting the factor into
    # e^{G_i} e^{-G_j} is cheaper and overflows as well, at -5 a token after 17 tokens in float32.
    causal = np.tril(np.ones((C, C), dtype=bool))[:, :, None]                    # [C, C, 1], j <= i
    between = G[..., :, None, :] - G[..., None, :, :]                            # [..., H, C(i), C(j), K]
    between = np.exp(np.where(causal, between, -np.inf))                         # e^{G_i - G_j}, and 0 for j > i

    A = np.einsum("...ik,...jk,...ijk->...ij", q, k, between)                    # [..., H, C, C], with the diagonal
    L = np.tril(np.einsum("...ik,...jk,...ijk->...ij", k, k, between), -1)       # [..., H, C, C], without it
    L = beta[..., :, None] * L                                                   # beta of the *later* token, row i

    right = beta[..., :, None] * np.concatenate([decay * k, v], axis=-1)         # [..., H, C, K+V]
    solved = forward_substitution(L, right)                                      # [..., H, C, K+V]
    W, U = solved[..., :K], solved[..., K:]                                      # [..., H, C, K], [..., H, C, V]
    written = U - W @ S                                                          # Vt: [..., H, C, V]

    o = (decay * q) @ S + A @ written                                            # [..., H, C, V]
    to_end = np.exp(G[..., -1:, :] - G)                                          # e^{G_C - G}: [..., H, C, K]
    S = decay[..., -1, :, None] * S + np.swapaxes(to_end * k, -2, -1) @ written  # [..., H, K, V]
    return o, S


def forward_substitution(L, right):
    """X with (I + L) X = right, L strictly lower triangular.   [..., C, C], [..., C, N] -> [..., C, N]

    Row by row: X_i = right_i - sum_{j<i} L_ij X_j. The inverse by repeated squaring, (I - L)(I + L^2)(I + L^4)..., is
    equal on paper, but with one repeated key and slow decay its terms grow like binomials and cancel to nothing.
    Raises ShapeError.
    """
    L, right = as_float64(L, right)
    check_shapes("forward_substitution", L=(L, "... C C"), right=(right, "... C N"))
    X = np.array(right)
    for i in range(1, L.shape[-1]):
        X[..., i, :] -= (L[..., i, None, :i] @ X[..., :i, :])[..., 0, :]         # [..., 1, i] @ [..., i, N]
    return X


def segment_transition(k, g, beta):
    """M with S_out = S_zero + M S_in, where S_zero is what the segment makes of an empty memory.

    [..., T, H, K], [..., T, H, K], [..., T, H] -> [..., H, K, K]

    M is the product of (I - beta k k^T) diag(alpha), the latest token leftmost. Two segments compose as
    (M_2 M_1, S_zero2 + M_2 S_zero1), which is associative: devices can each take a segment (context parallelism), and
    a prefix scan joins them. No token at all gives the identity.  Arguments as `kda_chunk`.  Raises ShapeError.
    """
    k, g, beta = as_float64(k, g, beta)
    sizes = check_shapes("segment_transition", k=(k, "... T H K"), g=(g, "... T H K"), beta=(beta, "... T H"))
    M = np.broadcast_to(np.eye(sizes["K"]), (*sizes["..."], sizes["H"], sizes["K"], sizes["K"])).copy()
    for t in range(sizes["T"]):
        k_t = k[..., t, :, :]                                                    # [..., H, K]
        M = np.exp(g[..., t, :, :])[..., None] * M                               # diag(alpha) M: rows are key channels
        along_k = np.einsum("...hk,...hkn->...hn", k_t, M)                       # k^T M: [..., H, K]
        M = M - (beta[..., t, :, None] * k_t)[..., :, None] * along_k[..., None, :]
    return M
