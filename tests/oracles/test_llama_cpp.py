"""llama.cpp runs our models: the same logits, the same greedy tokens, the same text."""

import os
import re
import subprocess
import sys
from importlib.metadata import version

import pytest
import torch
from llama_cpp import in_llama_cpp
from oracle_helpers import BASE, LENGTHS, corpus_prompts, live_k3, pieces, prompt

from k3_scratch.export.gguf import read_gguf, to_gguf
from k3_scratch.export.gguf_keys import ARCHITECTURE, remarks
from k3_scratch.export.llama_cpp import LlamaCpp, LlamaCppError
from k3_scratch.export.mxfp4 import pack, unpack
from k3_scratch.generate import generate
from k3_scratch.layers.kda_attention import KimiDeltaAttention
from k3_scratch.layers.mla_attention import GatedMLA
from k3_scratch.pretrained import pretrained
from k3_scratch.tasks.vocabulary import decode, encode

NAME, VERSION = "llama.cpp", version("xllamacpp")
LARGEST, MEAN = "largest difference of a logit", "mean difference of a logit"
MOST, MOST_ON_AVERAGE = 2e-4, 1e-5               # random weights: ten times what is measured
TRAINED = 5e-3, 1e-4                             # the miniature may be trained anew: what issue 4 allows
K3_LIKE = BASE.replace(l2_norm_eps=BASE.rms_norm_eps, latent_norm_eps=BASE.rms_norm_eps)     # llama.cpp has one eps
ODD = {"hidden_size": 29, "num_heads": 5, "kda_key_dim": 7, "kda_value_dim": 7, "q_lora_rank": 13, "kv_lora_rank": 11,
       "qk_nope_head_dim": 6, "qk_rope_head_dim": 3, "v_head_dim": 9, "intermediate_size": 37, "num_experts": 8,
       "num_experts_per_token": 4, "num_shared_experts": 3, "moe_intermediate_size": 19, "moe_latent_size": 17,
       "vocab_size": 31, "conv_size": 2}
CONFIGURATIONS = {
    "K3 in small": {}, "no q rank": {"q_lora_rank": None}, "un-rotated width 0": {"qk_rope_head_dim": 0},
    "odd widths": ODD,
    "blocks of 1 layer": {"attn_res_block_size": 1}, "blocks of 3 layers": {"attn_res_block_size": 3},
    "one block larger than the depth": {"attn_res_block_size": 9},
    "a partial last block": {"num_layers": 5, "attn_res_block_size": 2},
    "two MLA layers, the first at the bottom": {"mla_layers": (0, 4)},
    "other bounds, scale and taps": {"routed_scaling_factor": 2.4, "gate_lower_bound": -3.0, "situ_beta": 1.5,
                                     "situ_linear_beta": 2.0, "conv_size": 5},
    "no shared expert, MLA gate and latent norm": {"num_shared_experts": 0, "mla_output_gate": False,
                                                   "moe_latent_norm": False},
    "no dense layer": {"first_k_dense": 0}, "only dense layers": {"first_k_dense": 6},
}
TEXTS = ("47+85=132\n", "é", "a  b\t\n\n c", "Käse – 日本語 🙂", "<bos> is text", "'s DON'T 2026 x2", "\x00\x7f")


def compare(record, covers, got, want, most=MOST, most_on_average=MOST_ON_AVERAGE):
    """Every position: within the limits, and the same most likely token."""
    assert got.shape == want.shape
    record(NAME, VERSION, covers, LARGEST, abs(got - want).max(), most)
    record(NAME, VERSION, covers, MEAN, abs(got - want).mean(), most_on_average)
    assert (got.argmax(-1) == want.argmax(-1)).all()


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_random_weights(name, tmp_path, record):
    """Prompts at once, in two parts and token by token: the same logits at every position."""
    config = K3_LIKE.replace(**CONFIGURATIONS[name])
    assert remarks(config) == []
    model = live_k3(config)
    with in_llama_cpp(model, tmp_path) as llama:
        for length in LENGTHS:
            ids = prompt(config, length, seed=length)
            want = model(ids)[0].numpy()
            assert want.std() > 1                                        # there is something to compare
            for way in ("whole", "split", "steps"):
                got = llama.logits(ids[0].tolist(), pieces(length, way))
                compare(record, f"random weights, {name}", got, want)


@pytest.fixture(scope="module")
def mini():
    return pretrained("mini")


@pytest.fixture(scope="module")
def llama(mini, tmp_path_factory):
    with in_llama_cpp(mini, tmp_path_factory.mktemp("mini")) as llama:
        yield llama


def with_one_eps(model):
    """The model in float64, with the eps of its RMSNorms everywhere, as llama.cpp has it."""
    model, eps = model.double(), model.config.rms_norm_eps
    for part in model.modules():
        if isinstance(part, KimiDeltaAttention):
            part.config = part.config.replace(l2_norm_eps=eps)
        if isinstance(part, GatedMLA):
            part.kv_a_layernorm.eps = part.q_a_layernorm.eps = eps
    return model


def test_the_trained_miniature_writes_the_same(mini, llama, record):
    """As exported, each side with its own eps: 64 greedy tokens after each of 20 prompts are the same tokens."""
    prompts = corpus_prompts(20)
    ours = generate(mini, prompts, 64)
    different = sum(llama.greedy(ids, 64) != written for ids, written in zip(prompts, ours, strict=True))
    assert all(len(written) == 64 for written in ours)
    record(NAME, VERSION, "trained miniature, 20 corpus prompts", "continuations of 64 greedy tokens that differ",
           different, 0)


@torch.no_grad()
def test_the_trained_miniature_has_the_same_logits(mini, llama, record):
    """Against the miniature with llama.cpp's one eps it is float32 rounding; the rest of the difference is the eps."""
    own, one_eps = pretrained("mini").double(), with_one_eps(pretrained("mini"))
    assert len(remarks(mini.config)) == 2
    prompts = corpus_prompts(6)
    for ids, written in zip(prompts, generate(mini, prompts, 40), strict=True):
        ids = ids + written
        want, exact = own(torch.tensor([ids]))[0].numpy(), one_eps(torch.tensor([ids]))[0].numpy()
        for way in ("whole", "split", "steps"):
            got = llama.logits(ids, pieces(len(ids), way))
            compare(record, "trained miniature, with llama.cpp's eps", got, exact, *TRAINED)
            record(NAME, VERSION, "trained miniature as exported", LARGEST, abs(got - want).max(), TRAINED[0])
            assert (got.argmax(-1) == want.argmax(-1)).all()


def test_text_goes_in_and_comes_out(mini, llama):
    """llama.cpp's own tokenizer reads the bytes of the text, and its own detokenizer writes them."""
    assert llama.vocab_size == mini.config.vocab_size
    for text in TEXTS:
        assert llama.tokenize(text) == encode(text), text
        assert llama.detokenize(encode(text)) == text.encode()
    text = decode(corpus_prompts(1)[0])
    assert llama.detokenize(llama.greedy(llama.tokenize(text), 20)) == bytes(generate(mini, encode(text), 20))


def test_four_bit_experts(mini, tmp_path, record):
    """The stored values are exactly those of our packing; a float32 copy of them has the same logits.

    Run from four bits llama.cpp also rounds the activations to eight; only the share of equal tokens is told.
    """
    packed = pretrained("mini")
    with torch.no_grad():
        for name, x in packed.named_parameters():
            if ".experts." in name:
                x.copy_(unpack(*pack(x)))
    ids = sum(corpus_prompts(6), [])[:200]
    with in_llama_cpp(packed, tmp_path, name="copy") as llama:
        got = llama.logits(ids)
    with torch.no_grad():
        want = with_one_eps(packed)(torch.tensor([ids]))[0].numpy()
    compare(record, "trained miniature, experts in MXFP4, as float32", got, want, *TRAINED)
    with in_llama_cpp(mini, tmp_path, name="packed", mxfp4=True) as llama:
        equal = (llama.logits(ids).argmax(-1) == want.argmax(-1)).mean()
    copied, stored = read_gguf(tmp_path / "copy.gguf")[1], read_gguf(tmp_path / "packed.gguf")[1]
    assert copied.keys() == stored.keys()
    wrong = sum((copied[name] != stored[name]).sum() for name in copied)
    record(NAME, VERSION, "trained miniature, experts in MXFP4", "stored values that differ", wrong, 0)
    assert (tmp_path / "packed.gguf").stat().st_size < 0.6 * (tmp_path / "copy.gguf").stat().st_size
    assert equal > 0.8


def test_a_missing_key_is_noticed(mini, tmp_path):
    """Without one of these keys llama.cpp stops, or aborts the process; our reader names the key."""
    to_gguf(mini, tmp_path / "whole.gguf")
    raw = (tmp_path / "whole.gguf").read_bytes()
    for key in ("embedding_length", "attention.head_count", "kda.head_dim", "ssm.conv_kernel", "attn_res.block_size"):
        name = f"{ARCHITECTURE}.{key}".encode()
        name = len(name).to_bytes(8, "little") + name                    # as in the file: the length, the name
        assert raw.count(name) == 1
        path = tmp_path / "without.gguf"
        path.write_bytes(raw.replace(name, name[:-1] + b"X"))
        process = load_apart(path)
        assert process.returncode != 0, key
        with pytest.raises(ValueError, match=re.escape(f"{ARCHITECTURE}.{key}: missing")):
            read_gguf(path)
    assert load_apart(tmp_path / "whole.gguf").returncode == 0


def load_apart(path):
    """Load a file and compute one token in a process of its own."""
    code = "import sys; from k3_scratch.export.llama_cpp import LlamaCpp; LlamaCpp(sys.argv[1]).logits([1])"
    return subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=False,
                          env={**os.environ, "GGML_NO_BACKTRACE": "1"})


def test_files_that_are_none(tmp_path):
    with pytest.raises(LlamaCppError, match="no such file"):
        LlamaCpp(tmp_path / "nowhere.gguf")
    (tmp_path / "text.gguf").write_text("hello", encoding="utf-8")
    with pytest.raises(LlamaCppError, match=r"text\.gguf: llama.cpp does not load it: .*magic"):
        LlamaCpp(tmp_path / "text.gguf")


@pytest.mark.parametrize("ids", [[65] * 257, [], [260], [-1]])
def test_tokens_that_cannot_be(llama, ids):
    """llama.cpp itself would abort the process."""
    with pytest.raises(LlamaCppError, match="below 260, in all at most 256"):
        llama.logits([1, 2], [1]), llama.reset(), llama.feed(ids)
