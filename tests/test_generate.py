"""generate: greedy is the argmax, batches change nothing, draws follow the probabilities, seeds decide alone."""

from types import SimpleNamespace

import pytest
import torch

from k3_scratch.config import preset
from k3_scratch.generate import choose, generate
from k3_scratch.model import K3

PROMPTS = [[5], [72, 101, 108, 108, 111], list(range(30, 53)), [7, 7]]
LOGITS = torch.tensor([[2.0, -1.0, 1.0, 0.0, 1.5, -3.0]])


@pytest.fixture(scope="module")
def model():
    """float64 and wide weights: the logits are far apart, so rounding cannot change a choice."""
    return K3(preset("nano").replace(initializer_range=0.4), seed=3).double()


class Fixed:
    """A stand-in for a model: the same logits whatever the tokens; remembers how it was called."""

    def __init__(self, logits):
        self.logits, self.training, self.calls = logits, True, []
        self.config = SimpleNamespace(vocab_size=logits.shape[-1], vision=None)
        self.embed_tokens = SimpleNamespace(weight=torch.zeros(1))

    def eval(self):
        self.training = False

    def train(self, mode):
        self.training = mode

    def new_cache(self, batch_size):
        return SimpleNamespace(batch_size=batch_size)

    def __call__(self, tokens, cache, *, mask=None):
        self.calls.append(tuple(tokens.shape))
        assert not self.training
        return self.logits.expand(*tokens.shape, -1)


def greedy_without_cache(model, prompt, count):
    tokens = list(prompt)
    with torch.no_grad():
        for _ in range(count):
            tokens.append(model(torch.tensor([tokens]))[0, -1].argmax().item())
    return tokens[len(prompt):]


@pytest.mark.parametrize("prompt", PROMPTS)
def test_greedy_is_the_argmax_of_the_whole_prefix(model, prompt):
    model.eval()
    written = generate(model, prompt, 12)
    assert written == greedy_without_cache(model, prompt, 12)
    assert len(set(written)) > 3                                          # not the same token again and again


def test_prompts_in_a_batch_are_continued_as_each_alone(model):
    assert generate(model, PROMPTS, 9) == [generate(model, prompt, 9) for prompt in PROMPTS]


def test_one_prompt_gives_a_list_and_a_list_of_one_a_list_of_lists(model):
    alone = generate(model, PROMPTS[1], 3)
    assert all(type(token) is int for token in alone)
    assert generate(model, [PROMPTS[1]], 3) == [alone]
    assert generate(model, torch.tensor(PROMPTS[1]).tolist(), 3) == alone
    assert len(generate(model, PROMPTS[1], 1)) == 1


def test_only_the_new_token_is_fed():
    fixed = Fixed(LOGITS)
    assert generate(fixed, [[1, 2, 3], [4]], 4) == [[0] * 4] * 2
    assert fixed.calls == [(2, 3), (2, 1), (2, 1), (2, 1)]


def test_a_row_ends_with_its_stop_token_and_the_others_go_on(model):
    free = generate(model, PROMPTS, 10)
    stop = free[1][3]
    stopped = generate(model, PROMPTS, 10, stop_tokens=(stop,))
    for before, after in zip(free, stopped, strict=True):
        assert after == (before[:before.index(stop) + 1] if stop in before else before)
    assert stopped[1] == free[1][:free[1].index(stop) + 1] and len(stopped[1]) < 10


def test_nothing_is_computed_after_every_row_has_stopped():
    fixed = Fixed(LOGITS)
    assert generate(fixed, [[1], [2]], 50, stop_tokens=(0,)) == [[0], [0]]
    assert len(fixed.calls) == 1


def frequencies(draws=40_000, seed=0, **settings):
    """Shares of each token among many draws from LOGITS."""
    arguments = {"temperature": 1.0, "top_k": None, "top_p": None, **settings}
    chosen = choose(LOGITS.expand(draws, -1), *arguments.values(), torch.Generator().manual_seed(seed))
    return torch.bincount(chosen, minlength=LOGITS.shape[-1]).double() / draws


def assert_drawn_from(wanted, **settings):
    """Within five standard errors of the probabilities, and never a token that has none."""
    wanted, draws = torch.as_tensor(wanted, dtype=torch.float64), 40_000
    seen = frequencies(draws, **settings)
    assert torch.all((seen - wanted).abs() <= 5 * (wanted * (1 - wanted) / draws).sqrt()), (seen, wanted)


def kept(tokens, temperature=1.0):
    """Softmax over these tokens alone."""
    p = torch.zeros(LOGITS.shape[-1], dtype=torch.float64)
    p[tokens] = (LOGITS[0, tokens].double() / temperature).softmax(0)
    return p


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.5])
def test_temperature_divides_the_logits(temperature):
    assert_drawn_from(kept([0, 1, 2, 3, 4, 5], temperature), temperature=temperature)


@pytest.mark.parametrize(("top_k", "tokens"), [(1, [0]), (2, [0, 4]), (3, [0, 2, 4]), (6, [0, 1, 2, 3, 4, 5]),
                                               (99, [0, 1, 2, 3, 4, 5])])
def test_top_k_keeps_the_k_most_likely(top_k, tokens):
    assert_drawn_from(kept(tokens), top_k=top_k)
    assert_drawn_from(kept(tokens, 0.7), top_k=top_k, temperature=0.7)


# probabilities in order: token 0 .4616, 4 .2800, 2 .1698, 3 .0625, 1 .0230, 5 .0031; sums .462, .742, .911, .974, .997
@pytest.mark.parametrize(("top_p", "tokens"), [(0.01, [0]), (0.46, [0]), (0.47, [0, 4]), (0.74, [0, 4]),
                                               (0.75, [0, 2, 4]), (0.92, [0, 2, 3, 4]), (1.0, [0, 1, 2, 3, 4, 5])])
def test_top_p_keeps_the_smallest_set_that_reaches_p(top_p, tokens):
    assert_drawn_from(kept(tokens), top_p=top_p)


def test_top_p_counts_the_probabilities_that_temperature_and_top_k_leave():
    """Among tokens 0 and 4 alone, token 0 has .62 and so reaches .6 by itself; among all it has .46."""
    assert_drawn_from(kept([0]), top_k=2, top_p=0.6)
    assert_drawn_from(kept([0, 4]), top_p=0.6)
    assert_drawn_from(kept([0, 2, 4], 2.5), top_p=0.6, temperature=2.5)


def test_top_k_of_one_is_greedy(model):
    assert generate(model, PROMPTS, 8, temperature=1.3, top_k=1) == generate(model, PROMPTS, 8)


def test_top_k_of_one_is_greedy_among_equal_logits():
    """The k most likely are k tokens, also when the k-th and the next are exactly as likely."""
    equal = torch.tensor([[1.0, 3.0, 3.0, 3.0, 0.0]]).expand(64, -1)
    chosen = choose(equal, 1.0, 1, None, torch.Generator().manual_seed(0))
    assert len(set(chosen.tolist())) == 1
    two = choose(equal, 1.0, 2, None, torch.Generator().manual_seed(0))
    assert len(set(two.tolist())) == 2


def test_the_seed_decides_alone(model):
    def drawn(seed, prompts=PROMPTS):
        return generate(model, prompts, 12, temperature=1.0, seed=seed)

    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = drawn(5)
    assert torch.equal(torch.get_rng_state(), before)                     # the global generator was not touched
    torch.manual_seed(2)
    torch.rand(100)
    assert drawn(5) == first
    assert drawn(6) != first
    assert drawn(5, [PROMPTS[1]] * 6) == drawn(5, [PROMPTS[1]] * 6)
    assert len({tuple(row) for row in drawn(5, [PROMPTS[1]] * 6)}) > 1    # rows of one batch are drawn independently


@pytest.mark.parametrize("mode", [True, False])
def test_the_mode_of_the_model_is_restored(model, mode):
    model.train(mode)
    try:
        bias = [moe.gate.e_score_correction_bias.clone() for moe in model.moe_layers().values()]
        generate(model, PROMPTS, 2)
        assert model.training is mode and model.layers[0].training is mode
        assert all(moe.observed_scores is None for moe in model.moe_layers().values())     # it ran in evaluation mode
        assert all(torch.equal(a, moe.gate.e_score_correction_bias)
                   for a, moe in zip(bias, model.moe_layers().values(), strict=True))
    finally:
        model.eval()


def test_a_vocabulary_without_the_pad_token_still_pads():
    small = K3(preset("nano").replace(vocab_size=50, initializer_range=0.4), seed=1).double().eval()
    prompts = [[3, 4, 5, 6], [9]]
    assert generate(small, prompts, 5) == [generate(small, prompt, 5) for prompt in prompts]


@pytest.mark.parametrize(("settings", "message"), [
    ({"max_new_tokens": 0}, "generate: max_new_tokens must be at least 1, but 0 came"),
    ({"temperature": -0.1}, r"generate: temperature must be 0 \(greedy\) or above, but -0.1 came"),
    ({"temperature": float("nan")}, "generate: temperature must be .* but nan came"),
    ({"top_k": 0}, "generate: top_k must be None or at least 1, but 0 came"),
    ({"top_p": 0.0}, "generate: top_p must be None or above 0 and at most 1, but 0.0 came"),
    ({"top_p": 1.1}, "generate: top_p must be None or above 0 and at most 1, but 1.1 came"),
    ({"prompt_ids": []}, "generate: prompt_ids must be one prompt or a list of prompts, none of them empty"),
    ({"prompt_ids": [[]]}, "generate: prompt_ids must be"),
    ({"prompt_ids": [[1], []]}, "generate: prompt_ids must be"),
    ({"prompt_ids": [260]}, "tokens must be from 0 to 259, but 260 came"),
    ({"prompt_ids": [[3], [-1]]}, "tokens must be from 0 to 259, but -1 came"),
])
def test_wrong_arguments_are_named(model, settings, message):
    with pytest.raises(ValueError, match=message):
        generate(model, **{"prompt_ids": [1], **settings})


def test_a_temperature_too_small_for_float32_draws_the_most_likely():
    assert generate(Fixed(LOGITS), [1], 2, temperature=1e-45) == [0, 0]


def test_the_mode_is_restored_after_an_error(model):
    model.train()
    try:
        with pytest.raises(ValueError, match="260"):
            generate(model, [260])
        assert model.training
    finally:
        model.eval()
