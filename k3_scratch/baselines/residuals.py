"""RESIDUALS: how the sublayers of a stack are joined, by name.

A residual is made as `RESIDUALS[name](config, num_sublayers)` and counts *sublayers* i = 0, 1, ...: i = 2 n is the
mixer of layer n and i = 2 n + 1 its FFN. It is a plain object, no module. A model drives it so:

    state = residual.start(h)                           h [B, T, D], the embedded tokens
    for i in range(num_sublayers):
        x = residual.read(state, i)                     [B, T, D], the input of sublayer i, before its norm
        state = residual.write(state, i, sublayer(x))   the sublayer's own output, nothing added
    h = residual.end(state)                             [B, T, D], before the final norm

A state is opaque: a tensor, or tuples of tensors and `Source`s. It is never changed in place, so an earlier state stays
usable. All of it belongs to the tokens at hand: nothing is carried from one call to the next, so no cache is needed.

What it learns lies in modules that the model registers under the names given, so that they are found by `parameters()`
and in the state dict:

    residual.modules_for(i)      {name: module} to register on layer i // 2; no name comes twice in one layer
    residual.final_modules()     {name: module} to register on the model itself

For "attention" (and "full_attention") the names are those of `K3`: layers.N.self_attention_res.{query,weight},
layers.N.mlp_res.{query,weight} and output_attn_res.{query,weight}, so K3's weights load as they are. "hyper" has
layers.N.self_attention_hc, layers.N.mlp_hc and output_hc, each with {fn,base,scale}; `fn` is a matrix, left unset for
whoever builds the model to draw. The residual holds the same modules: move, copy or load them only through the model
that owns both (`model.to`, `load_state_dict`, `copy.deepcopy(model)` all do right).
"""

from k3_scratch.baselines.block_attention_residuals import BlockAttentionResiduals
from k3_scratch.baselines.entry import Baseline, registry
from k3_scratch.baselines.full_attention_residuals import FullAttentionResiduals
from k3_scratch.baselines.hyper_connections import HyperConnections
from k3_scratch.baselines.plain_residual import PlainResidual

RESIDUALS = registry(
    Baseline("plain", "residual", "nearly all transformers; Kimi Linear",
             "x_i = h_i, h_{i+1} = h_i + y_i", "He et al., arXiv 1603.05027; GPT-2", PlainResidual),
    Baseline("attention", "residual", "Kimi K3",
             "x_i = sum_j softmax_j(w_i . b_j / rms(b_j)) b_j over finished blocks and the running sum",
             "AttnRes, arXiv 2603.15031; K3 report", BlockAttentionResiduals),
    Baseline("full_attention", "residual", "AttnRes, full form",
             "x_i = sum_{j<=i} softmax_j(w_i . v_j / rms(v_j)) v_j, v_0 the embedding, v_{j+1} = y_j",
             "AttnRes, arXiv 2603.15031", FullAttentionResiduals),
    Baseline("hyper", "residual", "DeepSeek-V4",
             "H_{i+1} = C^T H_i + post y_i, x_i = pre . H_i, n streams H, C doubly stochastic by Sinkhorn",
             "mHC, arXiv 2512.24880; DeepSeek-V4 report", HyperConnections),
)
