"""The loop over chunks of KDA, forward and hand-written backward: three operations per chunk each way."""

import torch


def kda_scan(W, U, K_end, through, state):
    """V~_n = U_n - W_n S_n;  S_{n+1} = through_n S_n + K_end_n^T V~_n, over the N chunks.

    W, K_end [B, H, N, C, K]   U [B, H, N, C, V]   through [B, H, N, K]   state S_1 [B, H, K, V]
    returns S_1 ... S_N [B, H, N, K, V], V~ [B, H, N, C, V] and the final state [B, H, K, V].
    """
    return _Scan.apply(W, U, K_end, through, state)


class _Scan(torch.autograd.Function):
    """The loop keeps every S_n; its backward runs the same loop in reverse and batches all that is outside it."""

    @staticmethod
    def forward(ctx, W, U, K_end, through, state):
        B, H, N, _, K = W.shape
        states, written = W.new_empty(B, H, N, K, U.shape[-1]), torch.empty_like(U)
        for n in range(N):
            states[:, :, n] = state
            torch.sub(U[:, :, n], W[:, :, n] @ state, out=written[:, :, n])
            state = through[:, :, n].unsqueeze(-1) * state + K_end[:, :, n].mT @ written[:, :, n]
        ctx.save_for_backward(W, K_end, through, states, written)
        return states, written, state

    @staticmethod
    def backward(ctx, d_states, d_written, d_state):
        W, K_end, through, states, written = ctx.saved_tensors
        d_written = d_written.clone()
        d_after = torch.empty_like(states)                               # gradient of S_{n+1}, chunk by chunk
        for n in reversed(range(W.shape[2])):
            d_after[:, :, n] = d_state
            d_written[:, :, n] += K_end[:, :, n] @ d_state
            d_state = through[:, :, n].unsqueeze(-1) * d_state + d_states[:, :, n] - W[:, :, n].mT @ d_written[:, :, n]
        return -d_written @ states.mT, d_written, written @ d_after.mT, (states * d_after).sum(-1), d_state
