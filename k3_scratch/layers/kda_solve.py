"""The triangular system of a KDA chunk, and its gradient by hand: one solve each way, nothing else written out."""

import torch

from k3_scratch.layers.by_hand import ByHand


def kda_solve(L, k_in, beta, v):
    """[W | U] with (I + L) [W | U] = [k_in | beta v], for every chunk and head at once.  Kimi Linear, section 3.

    L [.., C, C], of which only the part below the diagonal is read; k_in [.., C, K], beta [.., C, 1], v [.., C, V]
    returns [.., C, K + V].
    """
    return _Solve.run(L, k_in, beta, v)


class _Solve(ByHand):
    """With R the right side and X the solution: d_R = (I + L)^-T d_X and d_L = -d_R X^T below the diagonal."""

    @staticmethod
    def forward(ctx, L, k_in, beta, v):
        K = k_in.shape[-1]
        solved = k_in.new_empty(*k_in.shape[:-1], K + v.shape[-1])
        solved[..., :K] = k_in
        torch.mul(beta, v, out=solved[..., K:])
        _solve_in_place(L.mT, solved, upper=True)
        ctx.save_for_backward(L, beta, v, solved)
        return solved

    @staticmethod
    def backward(ctx, d_solved):
        L, beta, v, solved = ctx.saved_tensors
        d_right = d_solved.clone(memory_format=torch.contiguous_format)  # a gradient handed in may be read elsewhere
        _solve_in_place(L, d_right, upper=False)
        d_L = (d_right @ solved.mT).tril_(-1).neg_()
        d_k_in, d_beta_v = d_right.split([d_right.shape[-1] - v.shape[-1], v.shape[-1]], -1)
        return d_L, d_k_in, (v * d_beta_v).sum(-1, keepdim=True), torch.mul(beta, d_beta_v, out=torch.empty_like(v))


def _solve_in_place(triangle, right, upper):
    """right <- right solved; as X^T triangle = right^T, which BLAS does three times faster."""
    torch.linalg.solve_triangular(triangle, right.mT, upper=upper, left=False, unitriangular=True, out=right.mT)
