"""llama.cpp as a function of token numbers: loads a GGUF file and gives logits, a greedy continuation, and its tokens.

It calls the C functions that the xllamacpp extension exports. The cache is float32 and flash attention is off: with
llama.cpp's defaults the logits of a K3 part from ours by 1e-3 to 1. Where the fields of its parameters lie depends on
the version, so the defaults are compared on the way in, and on the way out what llama.cpp says it was given.
"""

import ctypes as c
import re
from pathlib import Path

import numpy as np

INSTALL = "pip install xllamacpp==2026.10.11549"
F32, F16, FLASH_OFF, AUTO, ERROR = 0, 1, 0, -1, 4


class LlamaCppError(RuntimeError):
    """llama.cpp is missing, is laid out otherwise than known here, or refused a file; the message carries its words."""


class _Model(c.Structure):
    """llama_model_params, passed on as it came; room for a longer one."""

    _fields_ = [("opaque", c.c_uint64 * 32)]


class _Context(c.Structure):
    """llama_context_params; the names in front are set or compared, what follows is passed on as it came."""

    _fields_ = [
        *[(name, c.c_int32) for name in ("n_ctx", "n_batch", "n_ubatch", "n_seq_max")], ("more_sizes", c.c_int32 * 3),
        *[(name, c.c_int32) for name in ("n_threads", "n_threads_batch", "kind", "rope_scaling", "pooling",
                                         "attention", "flash_attn")],
        ("rope_and_yarn", c.c_uint32 * 8), ("eval_callback", c.c_void_p * 2),
        ("type_k", c.c_int32), ("type_v", c.c_int32), ("opaque", c.c_uint64 * 32)]


class _Batch(c.Structure):
    """llama_batch; null positions and sequences mean: one sequence, going on where it was."""

    _fields_ = [("n_tokens", c.c_int32), ("token", c.POINTER(c.c_int32)), ("embd", c.c_void_p), ("pos", c.c_void_p),
                ("n_seq_id", c.c_void_p), ("seq_id", c.c_void_p), ("logits", c.POINTER(c.c_int8))]


_LOG = c.CFUNCTYPE(None, c.c_int, c.c_char_p, c.c_void_p)
_SIGNATURES = {                                  # name: (result, *arguments)
    "llama_log_set": (None, _LOG, c.c_void_p),
    "llama_backend_init": (None,),
    "llama_model_default_params": (_Model,),
    "llama_context_default_params": (_Context,),
    "llama_model_load_from_file": (c.c_void_p, c.c_char_p, _Model),
    "llama_init_from_model": (c.c_void_p, c.c_void_p, _Context),
    "llama_model_free": (None, c.c_void_p),
    "llama_free": (None, c.c_void_p),
    "llama_n_ctx": (c.c_uint32, c.c_void_p),
    "llama_n_batch": (c.c_uint32, c.c_void_p),
    "llama_n_threads": (c.c_int32, c.c_void_p),
    "llama_get_memory": (c.c_void_p, c.c_void_p),
    "llama_memory_clear": (None, c.c_void_p, c.c_bool),
    "llama_decode": (c.c_int32, c.c_void_p, _Batch),
    "llama_get_logits_ith": (c.POINTER(c.c_float), c.c_void_p, c.c_int32),
    "llama_model_get_vocab": (c.c_void_p, c.c_void_p),
    "llama_vocab_n_tokens": (c.c_int32, c.c_void_p),
    "llama_tokenize": (c.c_int32, c.c_void_p, c.c_char_p, c.c_int32, c.POINTER(c.c_int32), c.c_int32, c.c_bool,
                       c.c_bool),
    "llama_detokenize": (c.c_int32, c.c_void_p, c.POINTER(c.c_int32), c.c_int32, c.c_char_p, c.c_int32, c.c_bool,
                         c.c_bool),
}
_said, _library = [], []                         # what llama.cpp logged since a file was opened; the loaded library


class LlamaCpp:
    """One GGUF file, one sequence at a time. Use it in a `with` block or call `close`.

    context   tokens there is room for
    threads   threads of llama.cpp
    """

    def __init__(self, path, *, context=1024, threads=1):
        self._model = self._context = None
        self.room, self.length = context, 0                              # tokens that fit, tokens fed
        self.lib = lib = library()
        if not Path(path).is_file():
            raise LlamaCppError(f"{path}: no such file")
        _said.clear()
        parameters = _float32_context(lib.llama_context_default_params(), context, threads)
        self._model = lib.llama_model_load_from_file(str(path).encode(), lib.llama_model_default_params())
        if not self._model:
            raise LlamaCppError(f"{path}: llama.cpp does not load it: {_reason()}")
        self._context = lib.llama_init_from_model(self._model, parameters)
        if not self._context:
            self.close()
            raise LlamaCppError(f"{path}: llama.cpp makes no context: {_reason()}")
        _check_context(lib, self._context, context, threads)
        self.vocab = lib.llama_model_get_vocab(self._model)
        self.vocab_size = lib.llama_vocab_n_tokens(self.vocab)

    def reset(self):
        """Forget the sequence."""
        self.length = 0
        self.lib.llama_memory_clear(self.lib.llama_get_memory(self._context), True)

    def feed(self, ids):
        """Go on with `ids` in one batch: the logits after each of them.                    [T] -> float32 [T, vocab]"""
        ids = list(map(int, ids))
        self.length += len(ids)
        if not ids or self.length > self.room or not 0 <= min(ids) <= max(ids) < self.vocab_size:   # it would abort
            raise LlamaCppError(f"wanted 1 token or more below {self.vocab_size}, in all at most {self.room}, but "
                                f"{self.length} came with {ids[:8]} ...")
        tokens, wanted = (c.c_int32 * len(ids))(*ids), (c.c_int8 * len(ids))(*[1] * len(ids))
        status = self.lib.llama_decode(self._context, _Batch(len(ids), tokens, None, None, None, None, wanted))
        if status:
            raise LlamaCppError(f"llama_decode gave {status} for {len(ids)} tokens: {_reason()}")
        rows = [self.lib.llama_get_logits_ith(self._context, i) for i in range(len(ids))]
        return np.stack([np.ctypeslib.as_array(row, (self.vocab_size,)).copy() for row in rows])

    def logits(self, ids, lengths=None):
        """The logits of a whole sequence from its start, `lengths` tokens a call (None: all at once), the rest in one.

        lengths = [1] * len(ids) is token by token.                                        [T] -> float32 [T, vocab]
        """
        self.reset()
        parts, start = [], 0
        for length in [*(lengths or []), len(ids)]:
            if start < len(ids):
                parts.append(self.feed(ids[start:start + length]))
            start += length
        return np.concatenate(parts)

    def greedy(self, ids, count):
        """The `count` most likely next tokens, one after the other, fed token by token."""
        self.reset()
        written, fed = [], ids
        for _ in range(count):
            written.append(int(self.feed(fed)[-1].argmax()))
            fed = written[-1:]
        return written

    def tokenize(self, text):
        """llama.cpp's own token numbers of a text; control tokens are not looked for in it."""
        raw = text.encode("utf-8")
        tokens = (c.c_int32 * (len(raw) + 8))()
        count = self.lib.llama_tokenize(self.vocab, raw, len(raw), tokens, len(tokens), True, False)
        if count < 0:
            raise LlamaCppError(f"llama_tokenize gave {count} for {text!r}")
        return list(tokens[:count])

    def detokenize(self, ids):
        """The bytes that llama.cpp shows for token numbers."""
        tokens, text = (c.c_int32 * len(ids))(*ids), c.create_string_buffer(16 * len(ids) + 16)
        count = self.lib.llama_detokenize(self.vocab, tokens, len(ids), text, len(text), False, True)
        if count < 0:
            raise LlamaCppError(f"llama_detokenize gave {count}")
        return text.raw[:count]

    def close(self):
        """Give the memory back."""
        if self._context:
            self.lib.llama_free(self._context)
        if self._model:
            self.lib.llama_model_free(self._model)
        self._model = self._context = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def library():
    """The C functions of llama.cpp inside the xllamacpp extension, silenced. LlamaCppError when it is not there."""
    if not _library:
        try:
            import xllamacpp.xllamacpp as extension
        except ImportError as error:
            raise LlamaCppError(f"the xllamacpp package is needed: {INSTALL}") from error
        lib = c.CDLL(extension.__file__)
        for name, (result, *arguments) in _SIGNATURES.items():
            if not hasattr(lib, name):
                raise LlamaCppError(f"this build of xllamacpp does not export {name}: {INSTALL}")
            function = getattr(lib, name)
            function.restype, function.argtypes = result, arguments
        lib.llama_log_set(_listen, None)
        lib.llama_backend_init()
        _library.append(lib)
    return _library[0]


@_LOG
def _listen(level, text, _):
    """Keep the lines in place of printing them."""
    _said.append((level, text.decode("utf-8", errors="replace")))


def _reason():
    """The errors that llama.cpp logged, in one line."""
    return " ".join(text.strip() for level, text in _said if level == ERROR) or "no message"


def _float32_context(parameters, context, threads):
    """The defaults, when they are the known ones, with a float32 cache and room for `context` tokens in one batch."""
    p = parameters
    given = (p.n_ctx, p.n_batch, p.n_ubatch, p.n_seq_max, p.n_threads, p.n_threads_batch, p.kind, p.rope_scaling,
             p.pooling, p.attention, p.flash_attn, p.type_k, p.type_v)
    if given != (512, 2048, 512, 1, 4, 4, 0, AUTO, AUTO, AUTO, AUTO, F16, F16):
        raise LlamaCppError(f"this llama.cpp lays out llama_context_params otherwise (defaults {given}): {INSTALL}")
    p.n_ctx = p.n_batch = context
    p.n_threads = p.n_threads_batch = threads
    p.type_k = p.type_v = F32
    p.flash_attn = FLASH_OFF
    return p


def _check_context(lib, made, context, threads):
    """Ask the context, and its log, whether it took what was asked for."""
    log = "".join(text for _, text in _said)
    if not (lib.llama_n_ctx(made) >= context == lib.llama_n_batch(made) and lib.llama_n_threads(made) == threads
            and re.search(r"flash_attn += disabled", log) and re.search(r"K \(f32\)", log)):
        raise LlamaCppError(f"this llama.cpp does not take a float32 cache without flash attention: {INSTALL}")
