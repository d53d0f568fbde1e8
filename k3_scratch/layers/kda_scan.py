"""The loop over chunks of KDA, forward and hand-written backward: three operations per chunk each way."""

import torch

from k3_scratch.layers.by_hand import ByHand


def kda_scan(solved, K_end, through, state):
    """V~_n = U_n - W_n S_n;  S_{n+1} = through_n S_n + K_end_n^T V~_n, over the N chunks of M heads.

    solved [W | U] [N, M, C, K + V]   K_end [N, M, C, K]   through [N, M, K]   state S_1 [M, K, V]
    returns S_1 ... S_N [N, M, K, V], V~ [N, M, C, V] and the final state [M, K, V].
    """
    return _Scan.run(solved, K_end, through.unsqueeze(-1), state)


class _Scan(ByHand):
    """The loop keeps every S_n; its backward runs the same loop in reverse and batches all that is outside it."""

    @staticmethod
    def forward(ctx, solved, K_end, through, state):
        N, (M, K, V) = len(solved), state.shape
        W, U = solved.split([K, V], -1)
        states, written = solved.new_empty(N + 1, M, K, V), solved.new_empty(U.shape)
        states[0] = state
        for W_n, U_n, K_n, keep, now, after, out in zip(*(x.unbind() for x in (
                W, U, K_end.mT, through, states[:-1], states[1:], written)), strict=True):
            torch.baddbmm(U_n, W_n, now, alpha=-1, out=out)
            torch.mul(keep, now, out=after).baddbmm_(K_n, out)
        ctx.save_for_backward(W, K_end, through, states, written)
        return states[:N], written, states[N].clone()

    @staticmethod
    def backward(ctx, d_states, d_written, d_state):
        W, K_end, through, states, written = ctx.saved_tensors
        N, K = len(W), W.shape[-1]
        d_written, d_after = d_written.clone(), torch.empty_like(states)             # d_after[n]: gradient of S_n
        d_after[N] = d_state
        for W_n, K_n, keep, d_S, d_out, d_now, after in zip(*(x.unbind()[::-1] for x in (
                W.mT, K_end, through, d_states, d_written, d_after[:-1], d_after[1:])), strict=True):
            d_out.baddbmm_(K_n, after)
            torch.addcmul(d_S, keep, after, out=d_now).baddbmm_(W_n, d_out, alpha=-1)
        states, later = states[:N], d_after[1:]
        d_solved = W.new_empty(*W.shape[:-1], K + written.shape[-1])
        torch.neg(d_written @ states.mT, out=d_solved[..., :K])
        d_solved[..., K:] = d_written
        return d_solved, written @ later.mT, (states * later).sum(-1, True), d_after[0]
