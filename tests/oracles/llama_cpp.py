"""Run one of our models in llama.cpp: export, load, ask. The runner itself is part of the package."""

from k3_scratch.export.gguf import to_gguf
from k3_scratch.export.llama_cpp import LlamaCpp


def in_llama_cpp(model, folder, *, name="model", context=256, mxfp4=False):
    """The model as an open `LlamaCpp`, written to `folder`/`name`.gguf.

        with in_llama_cpp(model, tmp_path) as llama:
            llama.logits(ids)                # [T] -> float32 [T, vocab], prefill
            llama.logits(ids, [3, 10])       # the same in parts, the rest in one
            llama.logits(ids, [1] * len(ids))
            llama.greedy(ids, 64)
    """
    path = folder / f"{name}.gguf"
    to_gguf(model, path, mxfp4=mxfp4, force=True)
    return LlamaCpp(path, context=context)
