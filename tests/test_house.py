"""The house: imports run one way, files are short, public things are described and refuse wrong shapes."""

import ast
import doctest
import importlib
import inspect
import pkgutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import k3_scratch
from k3_scratch.config import K3Config, VisionConfig, preset
from k3_scratch.model import K3
from k3_scratch.shapes import ShapeError

PACKAGE = Path(k3_scratch.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))
MODEL_SIDE = {"model", "layers", "config", "shapes", "cache", "vision"}
EVERYTHING = None
NOT_FOR_THE_COURSE = ("lab", "bench")

# What each part of the package may import of it. A part is a folder, or a file at the top; all may import themselves.
MAY_IMPORT = {
    "__init__": set(), "shapes": set(), "config": set(), "files": set(), "tasks": set(),
    "reference": {"shapes"},
    "layers": {"config", "shapes"},
    "baselines": {"layers", "config", "shapes"},
    "cache": {"layers", "config", "shapes", "accounting"},
    "accounting": {"layers", "config", "shapes", "cache", "vision"},
    "model": {"layers", "config", "shapes", "cache", "accounting", "vision"}, "vision": {"layers", "config", "shapes"},
    "generate": {*MODEL_SIDE, "tasks.vocabulary"},
    "training": {"model", "cache", "generate", "tasks", "config", "layers", "files", "vision"},
    "analysis": {"model", "layers", "reference", "shapes"}, "serving": {*MODEL_SIDE, "generate", "reference"},
    "export": {*MODEL_SIDE, "reference", "files", "tasks.vocabulary"},
    "plots": {"config", "shapes"},
    "pretrained": {"training"},
    "course": EVERYTHING,                          # but NOT_FOR_THE_COURSE
    "lab": EVERYTHING, "bench": EVERYTHING, "commands": EVERYTHING, "__main__": EVERYTHING,
}
OUTSIDE = {                                        # and of the outside world, where that is restricted
    "shapes": set(), "config": set(), "tasks": {"numpy"}, "reference": {"numpy"}, "plots": {"numpy", "matplotlib"},
    "layers": {"torch", "numpy"}, "baselines": {"torch"}, "cache": {"torch"}, "model": {"torch"}, "generate": {"torch"},
    "vision": {"torch"},
}


def relative(file):
    return str(file.relative_to(PACKAGE))


def part(file):
    """plots/style.py -> plots, model.py -> model"""
    return file.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(file):
    """Dotted names of all modules that a file imports, wherever in it; ours begin with "k3_scratch"."""
    modules = []
    here = ["k3_scratch", *file.relative_to(PACKAGE).parent.parts]
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            modules += [name.name for name in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = here[:len(here) - node.level + 1] if node.level else []
            base = ".".join([*base, *filter(None, [node.module])])
            # `from k3_scratch import config` names a module, `from k3_scratch.config import K3Config` does not
            modules += [f"{base}.{name.name}" if is_module(f"{base}.{name.name}") else base for name in node.names]
    return modules


def is_module(name):
    if name.split(".")[0] != "k3_scratch":
        return False
    path = PACKAGE.parent.joinpath(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").exists()


@pytest.mark.parametrize("file", FILES, ids=relative)
def test_imports_run_one_way(file):
    mine = part(file)
    assert mine in MAY_IMPORT, f"say in MAY_IMPORT what {mine} may import"
    allowed = MAY_IMPORT[mine]
    if mine == "course":
        assert not [module for module in imported(file) if module.split(".")[1:2] in ([n] for n in NOT_FOR_THE_COURSE)]
    if allowed is EVERYTHING:
        return
    for module in imported(file):
        if module.split(".")[0] != "k3_scratch" or module == "k3_scratch":            # the package itself: its version
            continue
        inside = module.removeprefix("k3_scratch.")
        fits = any(inside == name or inside.startswith(name + ".") for name in {*allowed, mine})
        assert fits, f"{relative(file)} imports {module}; {mine} may import {sorted(allowed)}"


@pytest.mark.parametrize("file", FILES, ids=relative)
def test_imports_of_the_outside_world(file):
    wanted = OUTSIDE.get(part(file))
    outside = {module.split(".")[0] for module in imported(file)} - {"k3_scratch"}
    foreign = {name for name in outside if name not in sys.stdlib_module_names}
    if wanted is not None:
        assert foreign <= wanted, f"{relative(file)} imports {sorted(foreign - wanted)}"
    if part(file) == "plots":
        assert "torch" not in outside


def test_the_import_reader_reads():
    """It sees plain, relative, inner and renamed imports, so an import cannot hide."""
    file = PACKAGE / "layers" / "imaginary.py"

    class Imaginary(type(file)):
        def read_text(self, **settings):
            return ("import k3_scratch.model as m\nfrom k3_scratch import training\nfrom ..tasks.rows import letter\n"
                    "from . import router\ndef f():\n    from k3_scratch.plots import style\n    import torch.nn\n")

    assert imported(Imaginary(file)) == ["k3_scratch.model", "k3_scratch.training", "k3_scratch.tasks.rows",
                                         "k3_scratch.layers.router", "k3_scratch.plots.style", "torch.nn"]


@pytest.mark.parametrize("file", FILES, ids=relative)
def test_a_file_has_at_most_300_lines_of_at_most_120(file):
    lines = file.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 300
    assert max(map(len, lines), default=0) <= 120


@pytest.mark.parametrize("file", FILES, ids=relative)
def test_public_functions_and_classes_are_described(file):
    """`add_to` and `run` of a command are described once for all commands, in the docstring of their folder."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    bare = [node.name for node in tree.body
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_")
            and not ast.get_docstring(node) and not (part(file) == "commands" and node.name in ("add_to", "run"))]
    assert bare == []
    assert ast.get_docstring(tree) or not tree.body


@pytest.mark.parametrize("file", FILES, ids=relative)
def test_text_files_name_their_encoding(file):
    """What a file means must not depend on the machine that reads it."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        if name not in ("open", "read_text", "write_text", "fdopen"):
            continue
        if isinstance(node.func, ast.Name) and name != "open":                        # a function of ours
            continue
        texts = [a.value for a in [*node.args, *(k.value for k in node.keywords)] if isinstance(a, ast.Constant)]
        binary = name in ("open", "fdopen") and any(isinstance(t, str) and "b" in t and len(t) <= 3 for t in texts)
        assert binary or any(keyword.arg == "encoding" for keyword in node.keywords), f"line {node.lineno}"


MODULES = [found.name for found in pkgutil.walk_packages(k3_scratch.__path__, "k3_scratch.")
           if not found.name.startswith("k3_scratch.tasks")]              # tests/tasks runs those


@pytest.mark.parametrize("name", ["k3_scratch", *MODULES])
def test_docstring_examples_run(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_docstring_examples_are_found():
    assert doctest.testmod(importlib.import_module("k3_scratch.shapes")).attempted >= 2
    assert len(MODULES) > 80


# ---- wrong shapes

SIZES = {"B": 2, "T": 5, "H": 3, "K": 4, "V": 6, "D": 7, "E": 9, "F": 8, "L": 11, "R": 10, "Q": 13, "r": 1, "S": 12,
         "M": 18, "P": 14, "taps": 4, "m": 15, "k": 2, "C": 16, "N": 17, "O": 3, "bins": 20, "W": 3}
KDA = {"q": "T H K", "k": "T H K", "v": "T H V", "g": "T H K", "beta": "T H", "state": "H K V"}
DELTA = {name: letters for name, letters in KDA.items() if name != "g"}
BACK = {"do": "T H V", "dstate": "H K V"}
MLA = {"q": "T H Q", "latent": "S R", "shared_key": "S r", "w_kvb": "H M R", "mask": "T S"}
GLU = {"gate": "T F", "up": "T F"}
GATE = {"z": "T H K", "A_log": "H"}
ROUTE = {"x": "D", "w_router": "E D", "bias": "E"}
BALANCE = {"scores": "m E", "bias": "E"}
MIX = {"sources": "N D", "query": "D", "norm_weight": "D"}


def batched(contracts):
    return {name: "B " + letters for name, letters in contracts.items()}


def step(contracts):
    return {name: letters.replace("T ", "") for name, letters in contracts.items()}


MOE = {"x": "D", "w_router": "E D", "bias": "E", "w_down": "L D", "w1": "E F L", "w3": "E F L", "w2": "E L F",
       "latent_norm": "L", "w_up": "D L", "shared_w1": "W D", "shared_w3": "W D", "shared_w2": "D W"}

# function: the shapes of its arrays in letters (the same letter, the same size), and what else it is called with;
# axes that may be there in any number are left out
REFERENCE = {
    "attention_residuals.depth_scores": (MIX, {}), "attention_residuals.depth_mix": (MIX, {}),
    "decay_gates.bounded_decay": (GATE, {}), "decay_gates.softplus_decay": (GATE, {}),
    "delta_rule.delta_step": ({"state": "K V", "k": "K", "v": "V", "beta": ""}, {}),
    "delta_rule.delta_recurrent": (DELTA, {}),
    "delta_rule_backward.delta_recurrent_backward": ({**DELTA, **BACK}, {}),
    "ffn.gated_ffn": ({"x": "D", "w_gate": "F D", "w_up": "F D", "w_down": "D F"}, {}),
    "gated_delta_rule.gated_delta_recurrent": ({**KDA, "g": "T H"}, {}),
    "kda.kda_step": (step(KDA), {}), "kda.kda_recurrent": ({**KDA, "documents": "T"}, {}),
    "kda_backward.kda_recurrent_backward": ({**KDA, **BACK}, {}),
    "kda_chunk.kda_chunk": (KDA, {}),
    "kda_chunk.forward_substitution": ({"L": "C C", "right": "C N"}, {}),
    "kda_chunk.segment_transition": ({"k": "T H K", "g": "T H K", "beta": "T H"}, {}),
    "latent_moe.latent_moe": (MOE, {"k": 2}),
    "linear_attention.linear_attention_recurrent": ({k: v for k, v in DELTA.items() if k != "beta"}, {}),
    "linear_attention.linear_attention_parallel": ({k: v for k, v in DELTA.items() if k != "beta"}, {}),
    "memory.start_state": ({"state": "H K V", "k": "T H K", "v": "T H V"}, {"function": "f"}),
    "mla.mla_naive": (MLA, {}), "mla.mla_absorbed": (MLA, {}),
    "quantile_balancing.quantile_bias": (BALANCE, {"k": 2}),
    "quantile_balancing.margin_histogram": (BALANCE, {"k": 2}),
    "quantile_balancing.quantile_bias_histogram": (BALANCE, {"k": 2}),
    "quantile_balancing.bias_from_histogram": ({"counts": "E bins"}, {"low": -1.0, "high": 1.0, "tokens": 20, "k": 2}),
    "quantile_balancing.alternating_balance": ({"scores": "m E"}, {"k": 2, "rounds": 1}),
    "patches.patches": ({"images": "M S T D"}, {"size": 1}), "pixel_shuffle.pixel_shuffle": ({"x": "M S T D"},
                                                                                             {"merge": 1}),
    "rms_norm.rms_norm": ({"x": "D", "weight": "D"}, {}),
    "rope_2d.rope_2d": ({"x": "M S T H K"}, {}),
    "router.route": (ROUTE, {"k": 2}),
    "vision.picture_attention": ({"x": "m T C D", "qkv": "O H K D", "output": "D S"}, {}),
    "vision.place_pictures": ({"h": "B T D", "tokens": "B T", "vectors": "B T D"}, {"image_token": 1}),
    "short_convolution.short_convolution": ({"x": "T P", "weight": "P taps", "tail": "O P"}, {}),
    "sign_rule.sign_rule": ({"bias": "E", "counts": "E"}, {"rate": 0.1}),
    "situ.situ_glu": (GLU, {}), "swiglu.swiglu": (GLU, {}),
    "two_phase.bank_phase": ({"bank": "N D", "queries": "H D", "norm_weights": "H D"}, {}),
    "two_phase.merge_phase": ({"log_total": "T", "mean": "T D", "h": "T D", "query": "D", "norm_weight": "D"}, {}),
}
LAYERS = {
    "attention_residuals.depth_mix": (MIX, {}),
    "calls.check_call": ({"tokens": "B T", "mask": "B T", "documents": "B T"}, {"name": "f", "vocab_size": 9}),
    "decay_gates.bounded_decay": (GATE, {}), "decay_gates.softplus_decay": (GATE, {}),
    "experts.expert_mixture": ({"z": "m L", "experts": "m k", "weights": "m k", "w1": "E F L", "w3": "E F L",
                                "w2": "E L F"}, {"act": lambda gate, up: gate * up}),
    "kda.kda_step": (batched(step(KDA)), {}),
    "kda.kda_recurrent": (batched({**KDA, "documents": "T"}), {}),
    "kda_chunk.kda_chunk": (batched({**KDA, "documents": "T"}), {}),
    "kda_inputs.kda_inputs": (batched({**KDA, "documents": "T"}), {"function": "f"}),
    "mla.mla_naive": ({**batched(MLA), "w_kvb": MLA["w_kvb"]}, {}),
    "mla.mla_absorbed": ({**batched(MLA), "w_kvb": MLA["w_kvb"]}, {}),
    "quantile_balancing.quantile_bias": (BALANCE, {"k": 2}),
    "quantile_histogram.pooled_bias": (BALANCE, {"k": 2, "add": lambda counts: counts, "least": lambda found: found}),
    "quantile_histogram.needed_biases": (BALANCE, {"k": 2}),
    "quantile_histogram.margin_places": ({"needed": "m E", "bias": "E"}, {}),
    "patches.patches": ({"images": "M S T D"}, {"size": 1}), "pixel_shuffle.pixel_shuffle": ({"x": "M S T D"},
                                                                                             {"merge": 1}),
    "rms_norm.rms_norm": ({"x": "D", "weight": "D"}, {}),
    "rope_2d.rope_2d": ({"x": "M S T H K"}, {}),
    "router.route": (ROUTE, {"k": 2}),
    "short_convolution.short_convolution": ({"x": "B T P", "weight": "P taps", "tail": "B O P", "documents": "B T"},
                                            {}),
    "situ.situ_glu": (GLU, {}), "situ.swiglu": (GLU, {}),
    "two_phase.bank_phase": ({"bank": "N D", "queries": "H D", "norm_weights": "H D"}, {}),
    "two_phase.merge_phase": ({"log_total": "T", "mean": "T D", "h": "T D", "query": "D", "norm_weight": "D"}, {}),
}
PACKED = {"state": "H K V", "documents": "T"}
LINEAR = {name: KDA[name] for name in ("q", "k", "v")} | PACKED
BASELINES = {
    "delta_net.delta_step": (batched({"state": "K V", "k": "K", "v": "V", "beta": ""}), {}),
    "delta_net.delta_recurrent": (batched({**DELTA, **PACKED}), {}),
    "delta_net.delta_chunk": (batched({**DELTA, **PACKED}), {}),
    "gated_delta_net.gated_delta_recurrent": (batched({**KDA, **PACKED, "g": "T H"}), {}),
    "gated_delta_net.gated_delta_chunk": (batched({**KDA, **PACKED, "g": "T H"}), {}),
    "hyper_connections.doubly_stochastic": ({"logits": "C C"}, {}),
    "linear_attention.linear_attention_recurrent": (batched(LINEAR), {}),
    "linear_attention.linear_attention_chunk": (batched(LINEAR), {}),
    "rope.rope": ({"x": "B T H K", "positions": "T"}, {}),
    "scalar_decay.scalar_decay_recurrent": (batched({**LINEAR, "g": "T H"}), {}),
    "scalar_decay.scalar_decay_chunk": (batched({**LINEAR, "g": "T H"}), {}),
    "sign_rule.sign_rule": ({"bias": "E", "counts": "E"}, {"rate": 0.1}),
    "softmax_attention.softmax_attention": ({"q": "B T H K", "k": "B S H K", "v": "B S H V", "mask": "B T S"}, {}),
    "softmax_moe.softmax_route": ({"x": "D", "w_router": "E D"}, {"k": 2}),
    "softmax_moe.load_balance_loss": ({"scores": "m E", "counts": "E"}, {"k": 2}),
    "token_loop.operator_inputs": (batched(LINEAR), {"function": "f", "scale": None}),
}
TABLES = {"reference": REFERENCE, "layers": LAYERS, "baselines": BASELINES}
# Any shape will do, no array is taken, or it is an inner step whose caller has checked the shapes.
ANY_SHAPE = {
    "reference": {"sigmoid.sigmoid", "silu.silu", "softmax.softmax", "gelu.gelu", "unit_keys.l2_norm",
                  "memory.as_float64", "memory.query_scale", "mla.visible_pairs", "mxfp4.mxfp4_pack"},
    "layers": {"precision.raised", "unit_keys.l2_norm", "situ.activation", "attention_residuals.mixing_weights",
               "attention_residuals.mixture", "experts.can_group", "experts.grouped_product", "experts.looped_product",
               "kda_scan.kda_scan", "kda_solve.kda_solve", "kda_tiles.fits_centred", "kda_tiles.centred_tiles",
               "kda_tiles.dyadic_tiles", "mla.visible", "mla_attention.seen_pairs", "calls.evaluating",
               "quantile_histogram.count_places"},
    "baselines": {"entry.registry", "ffns.full_width", "frame.build", "hyper_connections.all_streams",
                  "hyper_connections.collapse", "mixers.new_layer_cache", "table.baseline_table",
                  "token_loop.token_loop"},
}
APART = {"k3.k3_forward", "vision.encode_pictures", "attention_residuals.full_attention_residuals",
         "attention_residuals.block_attention_residuals",
         "mxfp4.mxfp4_unpack"}                           # takes bytes: its wrong shapes are in test_case_22


def arrays(contracts, make):
    return {name: make(name, tuple(SIZES[letter] for letter in letters.split()))
            for name, letters in contracts.items()}


def numpy_array(name, shape):
    if name == "counts" and len(shape) == 2:
        return np.ones(shape)
    if name in ("mask", "documents", "tokens"):
        return np.ones(shape, dtype=bool if name == "mask" else np.int64)
    return np.random.default_rng(len(name)).uniform(-0.9, -0.1, shape)


def torch_array(name, shape):
    if name == "experts":
        return torch.arange(shape[-1]).expand(shape)
    return torch.from_numpy(np.ascontiguousarray(numpy_array(name, shape)))


def call(folder, name, given, others):
    module, function = name.split(".")
    function = getattr(importlib.import_module(f"k3_scratch.{folder}.{module}"), function)
    known = inspect.signature(function).parameters
    assert {*given, *others} <= set(known), f"{name} takes {list(known)}"
    return function(**given, **others)


def wrong_shapes(contracts):
    """(argument, its wrong shape): one axis too few, and each axis that a letter ties to another, one larger."""
    tied = " ".join(contracts.values()).split()
    for name, letters in contracts.items():
        letters = letters.split()
        shape = [SIZES[letter] for letter in letters]
        if letters:
            yield name, tuple(shape[1:])
        for axis, letter in enumerate(letters):
            # O = taps - 1 and M = n + v with Q = n + r are tied by arithmetic; r and Q move together
            if (tied.count(letter) > 1 or letter == "O") and letter not in "rQM":
                yield name, (*shape[:axis], shape[axis] + 1, *shape[axis + 1:])


CASES = [(folder, name) for folder, table in TABLES.items() for name in table]


@pytest.mark.parametrize(("folder", "name"), CASES, ids=[f"{folder}.{name}" for folder, name in CASES])
def test_wrong_shapes_are_refused(folder, name):
    contracts, others = TABLES[folder][name]
    make = numpy_array if folder == "reference" else torch_array
    call(folder, name, arrays(contracts, make), others)                   # as it should be, it runs
    accepted, tried = [], 0
    for argument, shape in wrong_shapes(contracts):
        given = {**arrays(contracts, make), argument: make(argument, shape)}
        tried += 1
        try:
            call(folder, name, given, others)
            accepted.append((argument, shape))
        except (ShapeError, ValueError, TypeError):
            pass
        except Exception as error:
            accepted.append((argument, shape, type(error).__name__))
    assert tried and accepted == []


@pytest.mark.parametrize("folder", TABLES)
def test_every_public_function_is_in_a_table(folder):
    found = set()
    for file in sorted((PACKAGE / folder).glob("*.py")):
        found |= {f"{file.stem}.{node.name}" for node in ast.parse(file.read_text(encoding="utf-8")).body
                  if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")}
    table = set(TABLES[folder]) | ANY_SHAPE[folder]
    assert found == table | (APART if folder == "reference" else set())


def test_wrong_shapes_into_the_whole_reference():
    from k3_scratch.reference.attention_residuals import block_attention_residuals, full_attention_residuals
    from k3_scratch.reference.k3 import k3_forward
    from k3_scratch.reference.vision import encode_pictures
    embedding, sublayers = np.ones((5, 7)), [lambda x: x] * 4
    for function, sizes in ((full_attention_residuals, ()), (block_attention_residuals, (2,))):
        function(embedding, sublayers, np.ones((5, 7)), np.ones((5, 7)), *sizes)
        for queries, weights in (((4, 7), (5, 7)), ((5, 8), (5, 7)), ((5, 7), (6, 7)), ((5, 7), (7,))):
            with pytest.raises((ShapeError, ValueError)):
                function(embedding, sublayers, np.ones(queries), np.ones(weights), *sizes)
    config = preset("nano").replace(num_layers=2)
    weights = {name: value.double().numpy() for name, value in K3(config).state_dict().items()}
    tokens = np.arange(6).reshape(1, 6)
    assert k3_forward(tokens, weights, config).shape == (1, 6, 260)
    with pytest.raises(ShapeError, match="tokens"):
        k3_forward(tokens[0], weights, config)
    pictures = K3Config(vision=VisionConfig(num_layers=1, hidden_size=8, num_heads=1, qkv_size=8, patch_size=2,
                                            intermediate_size=8, position_table=2))
    with_eyes = {name: value.double().numpy() for name, value in K3(pictures).state_dict().items()}
    images = np.zeros((2, 4, 4, 3))
    assert encode_pictures(images, with_eyes, pictures).shape == (2, 1, 64)
    for wrong in (images[0], images[..., :2], images[:, :3]):
        with pytest.raises((ShapeError, ValueError)):
            encode_pictures(wrong, with_eyes, pictures)
    for name in ("embed_tokens.weight", "layers.0.self_attn.q_proj.weight", "layers.1.self_attn.kv_b_proj.weight",
                 "layers.1.block_sparse_moe.experts.w2", "norm.weight"):
        with pytest.raises((ShapeError, ValueError)):
            k3_forward(tokens, {**weights, name: weights[name][..., :-1]}, config)
