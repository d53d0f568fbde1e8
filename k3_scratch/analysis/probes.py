"""Linear probes: what can be read from the vectors of a model? Earlier tokens, and the place where a token stands.

What a linear map can read, a query or a key of the next layer can read too.
"""

import numpy as np

from k3_scratch.analysis.watch import watched
from k3_scratch.shapes import ShapeError, check_shapes


def streams(model, tokens):
    """What travels up the model: what each layer reads before its norm, and last what the final norm reads.

    tokens [B, T] -> [number of layers + 1, B, T, D] float64; entry 0 is the embedding, entry i what layer i hands up
    (layers counted from 1). With attention residuals, where layers read mixes, these are the mixes.
    """
    reads = {i: layer.input_layernorm for i, layer in enumerate(model.layers)} | {"end": model.norm}
    with watched(reads) as seen:
        model(tokens)
    return np.stack([seen[name][0].double().cpu().numpy() for name in reads])


def ridge(x, y, penalty=1e-3):
    """Least squares with a small penalty, fitted on the first half of the rows and applied to the second.

    x [n, D], y [n, m] -> [n - n//2, m].  The columns of x get mean 0 and spread 1 on the first half; the penalty on
    the squared weights is `penalty` times the number of rows.  A column that never changes counts for nothing.
    """
    half = check_shapes("ridge", x=(x, "n D"), y=(y, "n m"))["n"] // 2
    if half < 1:
        raise ShapeError(f"ridge: x must have n of at least 2 rows, but {len(x)} came")
    spread = x[:half].std(axis=0)
    x = (x - x[:half].mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    gram = x[:half].T @ x[:half] + penalty * half * np.eye(x.shape[1])
    mean = y[:half].mean(axis=0)
    return mean + x[half:] @ np.linalg.solve(gram, x[:half].T @ (y[:half] - mean))


def tokens_read(x, symbols, lags, start, penalty=1e-3):
    """From the vector at t, the token at t - lag: share of right readings for each lag.

    x [B, T, D], symbols [B, T] whole numbers from 0 on, lags [n] from 0 to `start`, the first place that is read
    -> [n].  Fitted on the first half of the rows, tested on the other; guessing gives 1 / number of symbols.
    """
    sizes = check_shapes("tokens_read", x=(x, "B T D"), symbols=(symbols, "B T"))
    if min(lags) < 0 or max(lags) > start:
        raise ValueError(f"tokens_read: lags must be from 0 to start = {start}, but {list(lags)} came")
    B, T = sizes["B"] - sizes["B"] % 2, sizes["T"]                       # as many rows to fit as to test
    if B < 2 or start >= T:
        raise ShapeError(f"tokens_read: x must have at least 2 rows of more than start = {start} tokens, but "
                         f"B = {sizes['B']}, T = {T} came")
    there = np.stack([symbols[:B, start - lag:T - lag].reshape(-1) for lag in lags])     # [n, N]
    wanted = np.concatenate(np.eye(symbols.max() + 1)[there], axis=1)                    # [N, n * symbols]
    scores = ridge(x[:B, start:].reshape(B * (T - start), -1), wanted, penalty)
    found = scores.reshape(len(scores), len(lags), -1).argmax(axis=-1).T                 # [n, N/2]
    return (found == there[:, there.shape[1] // 2:]).mean(axis=1)


def position_read(x, start, penalty=1e-3):
    """From the vector at t, t itself: the share R^2 of its variance that is read; 1 all, 0 none, below 0 worse.

    x [B, T, D]; places from `start` to T - 1; fitted on the first half of the rows, tested on the other -> a number
    """
    B, T = (check_shapes("position_read", x=(x, "B T D"))[letter] for letter in "BT")
    B -= B % 2
    if B < 2 or start > T - 2:
        raise ShapeError(f"position_read: x must have at least 2 rows of more than start + 1 = {start + 1} tokens, but "
                         f"B = {B}, T = {T} came")
    place = np.tile(np.arange(start, T, dtype=float), B)[:, None]                        # [N, 1]
    left = place[len(place) // 2:] - ridge(x[:B, start:].reshape(len(place), -1), place, penalty)
    return 1.0 - float(np.mean(left ** 2) / np.var(place))
