"""Continue prompts: greedy or sampled, batched, with the cache."""

import torch

from k3_scratch.layers.calls import evaluating
from k3_scratch.tasks.vocabulary import PAD


@torch.inference_mode()
def generate(model, prompt_ids, max_new_tokens=64, *, temperature=0.0, top_k=None, top_p=None, stop_tokens=(), seed=0,
             images=None):
    """The continuation of each prompt, without the prompt.

    prompt_ids      one prompt (list of token numbers) or a list of prompts of any lengths, none empty
    temperature     0: greedy, the most likely token; else the logits are divided by it and a token is drawn
    top_k, top_p    draw only among the k most likely / the smallest set whose probability reaches p (before top_p,
                    top_k has already cut)
    stop_tokens     a row ends after one of them; the stop token is the last of the result
    seed            of the draws: the same seed gives the same text, whatever was drawn elsewhere
    images          [P, Y, X, C] uint8, the pictures whose markers stand in the prompts, prompt after prompt; a model
                    with a picture encoder writes text alone, never a marker
    Returns a list of token numbers for one prompt, a list of lists for several. Raises ValueError naming the argument.
    """
    single = len(prompt_ids) > 0 and not hasattr(prompt_ids[0], "__len__")
    prompts = [list(map(int, prompt)) for prompt in ([prompt_ids] if single else prompt_ids)]
    check_request("generate", prompts, max_new_tokens, temperature, top_k, top_p, seed)
    device = model.embed_tokens.weight.device
    generator = torch.Generator(device="cpu").manual_seed(seed)
    longest = max(map(len, prompts))
    filler = PAD if model.config.vocab_size > PAD else 0
    tokens = torch.tensor([[filler] * (longest - len(p)) + p for p in prompts], device=device)
    mask = torch.tensor([[False] * (longest - len(p)) + [True] * len(p) for p in prompts], device=device)
    cache = model.new_cache(len(prompts))
    outputs, running = [[] for _ in prompts], [True] * len(prompts)
    with evaluating(model):
        pictures = {} if images is None else {"images": images}
        logits = model(tokens, cache, mask=None if mask.all() else mask, **pictures)[:, -1]
        for i in range(max_new_tokens):
            chosen = choose(text_only(model, logits), temperature, top_k, top_p, generator)
            for row, token in enumerate(chosen.tolist()):
                if running[row]:
                    outputs[row].append(token)
                    running[row] = token not in stop_tokens
            if not any(running) or i + 1 == max_new_tokens:
                break
            logits = model(chosen.unsqueeze(1).to(device), cache)[:, -1]
    return outputs[0] if single else outputs


def text_only(model, logits):
    """The logits without the picture marker: a model that reads pictures writes none.     [B, vocab] -> [B, vocab]"""
    if model.config.vision is None:
        return logits
    marker = torch.arange(logits.shape[-1], device=logits.device) == model.config.vision.image_token
    return logits.masked_fill(marker, -torch.inf)


def choose(logits, temperature, top_k, top_p, generator):
    """The next token of each row, greedy or drawn; arguments as `generate`.                    [B, vocab] -> [B]"""
    if temperature == 0:
        return logits.argmax(-1)
    logits = logits.double().cpu()
    logits = (logits - logits.amax(-1, keepdim=True)) / temperature      # at most 0: no temperature overflows
    if top_k is not None:
        kept = logits.topk(min(top_k, logits.shape[-1]), -1).indices
        logits = logits.masked_fill(torch.ones_like(logits, dtype=torch.bool).scatter(-1, kept, False), -torch.inf)
    if top_p is not None:
        probabilities, order = logits.softmax(-1).sort(dim=-1, descending=True, stable=True)
        beyond = probabilities.cumsum(-1) - probabilities >= top_p       # enough probability comes before this token
        logits = logits.masked_fill(torch.zeros_like(beyond).scatter(-1, order, beyond), -torch.inf)
    return torch.multinomial(logits.softmax(-1), 1, generator=generator).squeeze(-1)


def check_request(function, prompts, max_new_tokens, temperature, top_k, top_p, seed):
    """Raise ValueError, in the name of `function`, for an argument that `generate` describes and that cannot be."""
    if not prompts or not all(prompts):
        raise ValueError(f"{function}: prompt_ids must be one prompt or a list of prompts, none of them empty")
    for name, value, fits, wanted in (
            ("max_new_tokens", max_new_tokens, max_new_tokens >= 1, "at least 1"),
            ("temperature", temperature, temperature >= 0, "0 (greedy) or above"),
            ("top_k", top_k, top_k is None or top_k >= 1, "None or at least 1"),
            ("top_p", top_p, top_p is None or 0 < top_p <= 1, "None or above 0 and at most 1"),
            ("seed", seed, 0 <= seed < 2 ** 63, "from 0 on, below 2^63")):
        if not fits:
            raise ValueError(f"{function}: {name} must be {wanted}, but {value} came")
