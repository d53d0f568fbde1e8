"""`k3 bench`: what it prints, writes and refuses; files and figures of a result."""

import argparse
import json
import re
import sys
import types
from pathlib import Path

import numpy as np
import pytest
import torch

import k3_scratch.commands.bench as command
from k3_scratch.bench import peers as peers_module
from k3_scratch.bench.figures import FIGURES, write_figures
from k3_scratch.bench.goals import GOALS, Row
from k3_scratch.bench.inputs import Shape, kda_inputs, scalar_gates, spread_gates
from k3_scratch.bench.measured import Measured
from k3_scratch.bench.peers import FLA_CHUNK, PINS, PeerError, load_peers, padded
from k3_scratch.bench.report import failed_floors, markdown, number, table, write_result
from k3_scratch.bench.suite import MEASUREMENTS, NEED_PEERS, UnknownMeasurement, chosen, cpu_name, run_suite
from k3_scratch.layers.kda import kda_recurrent

ROOT = Path(__file__).resolve().parents[2]
ROWS = [Row("fast enough", 12.34, GOALS["forward over fla"], 11.0, 13.0, note="a|b"),
        Row("too slow", 7.0, GOALS["over the GEMM limit"]), Row("exploded", float("inf"), GOALS["accuracy, forward"]),
        Row("for information", 250.0, unit="ms")]


def parsed(*arguments):
    parser = argparse.ArgumentParser()
    command.add_to(parser.add_subparsers())
    return parser.parse_args(["bench", *arguments])


@pytest.fixture
def fake(monkeypatch):
    """Two measurements that take no time, one of which misses its floor."""
    runs = []

    def measure(plan, peers):
        runs.append((plan.name, peers))
        return Measured([ROWS[0]], {"error": {"chunks": [4, 8], "errors": {"dyadic": [1e-7, None]}}}, (0.1, 0.3, 0.2))
    fakes = {"limit": measure, "accuracy": lambda plan, peers: Measured([ROWS[1]])}
    monkeypatch.setattr("k3_scratch.bench.suite.MEASUREMENTS", fakes)
    return runs


def test_the_suite(tiny, own_peers):
    said = []
    rows, result = run_suite(tiny, ("limit", "chunk_error"), peers=own_peers, say=said.append)
    assert [row.name for row in rows] == [row["name"] for row in result["rows"]] and len(rows) == 3
    assert result["measurements"] == ["limit", "chunk_error"] and result["gemm_gflops"] > 0
    assert result["versions"]["transformers"] == "0" and {"torch", "numpy", "python"} <= set(result["versions"])
    assert result["hardware"]["threads"] == 1 and result["plan"] == "tiny"
    assert [line.split()[-1] for line in said] == ["limit", "chunk_error"]
    json.dumps(result, allow_nan=False)


def test_only_known_names_in_their_order():
    assert chosen() == chosen([]) == list(MEASUREMENTS)
    assert chosen(["limit", "forward"]) == ["forward", "limit"]
    with pytest.raises(UnknownMeasurement, match="only must be one of forward, .*but 'warp' came"):
        chosen(["limit", "warp"])
    assert set(NEED_PEERS) <= set(MEASUREMENTS)
    with pytest.raises(UnknownMeasurement):
        command.run(parsed("--only", "warp"))


def test_peers_are_loaded_only_where_needed(fake, tmp_path, monkeypatch):
    monkeypatch.setattr("k3_scratch.bench.suite.NEED_PEERS", ("accuracy",))
    assert command.run(parsed("--only", "limit", "--peers", str(tmp_path))) == 0
    assert fake == [("full", None)]
    with pytest.raises(PeerError):
        command.run(parsed("--only", "accuracy", "--peers", str(tmp_path)))


def test_nothing_is_written_by_a_part_unless_asked(fake, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert command.run(parsed("--quick")) == 0 and command.run(parsed("--only", "limit")) == 0
    assert list(tmp_path.iterdir()) == []
    assert command.run(parsed("--quick", "--out", "there")) == 0
    assert sorted(p.name for p in (tmp_path / "there").rglob("*.*")) == ["bench.json", "bench.md", "bench_error.png"]
    assert command.run(parsed()) == 0
    assert (tmp_path / "figures" / "results" / "bench.json").exists()
    assert [plan for plan, _ in fake] == ["quick", "full", "quick", "full"]
    printed = capsys.readouterr().out
    assert "misses its floor: too slow" in printed and "GEMM 1024³: 10.7 GFLOP/s" in printed


def test_strict(fake):
    assert command.run(parsed("--quick", "--strict")) == 1
    assert command.run(parsed("--only", "limit", "--strict")) == 0


def test_table_and_failed_floors():
    lines = table(ROWS).splitlines()
    assert len(lines) == 6 and len({len(line) for line in lines}) == 1
    assert re.split(r"\s{2,}", lines[2].strip()) == ["fast enough", "≥ 8", "≥ 11", "12.3×", "11.0 … 13.0", "yes", "yes"]
    assert re.split(r"\s{2,}", lines[3].strip()) == ["too slow", "≤ 6", "≤ 3.5", "7.00×", "–", "NO", "NO"]
    assert "not finite" in lines[4] and re.split(r"\s{2,}", lines[5].strip())[1:4] == ["–", "–", "250 ms"]
    assert failed_floors(ROWS) == ["too slow", "exploded"]


@pytest.mark.parametrize(("value", "text"), [
    (0.0, "0"), (None, "–"), (0.9994, "0.999"), (1.0, "1.00"), (31.62, "31.6"), (512.4, "512"), (1.4e-6, "1.4e-06"),
    (0.05, "0.0500"), (float("nan"), "not finite"), (-0.25, "-0.250")])
def test_numbers(value, text):
    assert number(value) == text


def result_of(rows, arrays=None, gemm=None):
    return {"plan": "full", "rounds": 9, "rows": [row.to_dict() for row in rows], "gemm_gflops": gemm,
            "versions": {"torch": "2"}, "arrays": arrays or {},
            "hardware": {"cpu": "an abacus", "cores": 2, "threads": 1, "load_average_before": 0.1,
                         "load_average_after": None}}


def test_markdown():
    text = markdown(ROWS, result_of(ROWS, gemm=61.25))
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert len(lines) == 6 and {line.count("|") for line in lines} == {9}
    assert lines[2] == "| fast enough | ≥ 8 | ≥ 11 | 12.3× | 11.0 … 13.0 | yes | yes | a/b |"
    assert "GEMM 1024³: 61.2 GFLOP/s" in text and "an abacus" in text and "torch 2" in text
    assert "not measured" in markdown(ROWS, result_of(ROWS))


def test_files(tmp_path):
    result = result_of(ROWS, {"step": {"milliseconds": {"KDA": 2.0, "MLA": 1.0}, "whole": 5.0}})
    paths = write_result(ROWS, result, tmp_path / "out")
    assert [path.name for path in paths] == ["bench.json", "bench.md", "bench_step.png"]
    assert json.loads(paths[0].read_text(encoding="utf-8")) == result
    assert sorted(path.name for path in (tmp_path / "out").rglob("*") if path.is_file()) == sorted(
        path.name for path in paths)                    # no temporary file is left
    assert write_result(ROWS, result, tmp_path / "out") == paths
    before = paths[0].read_text(encoding="utf-8")
    with pytest.raises(ValueError, match="JSON"):
        write_result(ROWS, {**result, "gemm_gflops": np.inf}, tmp_path / "out")
    assert paths[0].read_text(encoding="utf-8") == before


def test_every_figure_has_a_measurement(measured, tmp_path):
    arrays = {name: values for each in measured.values() for name, values in each.arrays.items()}
    paths = write_figures(json.loads(json.dumps({"arrays": arrays}, allow_nan=False)), tmp_path)
    assert [path.name for path in paths] == [file for file, _, _ in FIGURES]


def test_missing_peers_say_what_to_type(tmp_path, monkeypatch):
    def version(name):
        return installed[name]
    monkeypatch.setattr(peers_module.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(peers_module.importlib.metadata, "version", lambda name: installed_version(name))

    def installed_version(name):
        if name not in installed:
            raise peers_module.importlib.metadata.PackageNotFoundError(name)
        return version(name)
    installed = {}
    with pytest.raises(PeerError, match="transformers is not installed.*pip install -r requirements-bench.txt"):
        load_peers(tmp_path)
    installed = {"transformers": "4.0", "einops": PINS["einops"]}
    with pytest.raises(PeerError, match="transformers must be 5.23.0, but 4.0 is installed: pip install -r"):
        load_peers(tmp_path)
    installed = PINS
    with pytest.raises(PeerError, match="but none is there: pip install --no-deps --target build/peers fla-core"):
        load_peers(tmp_path)
    (tmp_path / "fla_core-0.5.1.dist-info").mkdir()
    with pytest.raises(PeerError, match="but 0.5.1 is there"):
        load_peers(tmp_path)
    monkeypatch.setattr(peers_module.importlib.util, "find_spec", lambda name: object())
    with pytest.raises(PeerError, match="fla must not be importable"):
        load_peers(tmp_path)


def test_peers_are_called_with_their_own_arguments(tmp_path, monkeypatch):
    """Stand-ins under the peers' names, with their signatures: (query, key, value, g=, beta=) and the fla file."""
    def stand_in(query, key, value, *, g, beta):
        return kda_recurrent(query, key, value, g if g.dim() == 4 else g.unsqueeze(-1).expand_as(key), beta)
    modules = {name: types.ModuleType(name) for name in (
        "transformers", "transformers.models", "transformers.models.kimi_linear",
        "transformers.models.qwen3_next", "transformers.models.kimi_linear.modeling_kimi_linear",
        "transformers.models.qwen3_next.modeling_qwen3_next")}
    quiet = []
    modules["transformers"].logging = types.SimpleNamespace(set_verbosity_error=lambda: quiet.append(True))
    for family, function in (("kimi_linear", "chunk_kimi_delta_attention"),
                             ("qwen3_next", "torch_chunk_gated_delta_rule")):
        module = modules[f"transformers.models.{family}.modeling_{family}"]
        setattr(module, function, stand_in)
        setattr(modules[f"transformers.models.{family}"], f"modeling_{family}", module)
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(peers_module.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(peers_module.importlib.metadata, "version", PINS.get)
    (tmp_path / f"fla_core-{PINS['fla-core']}.dist-info").mkdir()
    naive = tmp_path / "fla" / "ops" / "kda" / "naive.py"
    naive.parent.mkdir(parents=True)
    naive.write_text("from k3_scratch.layers.kda import kda_recurrent as naive_chunk_kda\n", encoding="utf-8")
    peers, inputs = load_peers(tmp_path), kda_inputs(Shape(1, 5, 2, 4, 3))
    assert peers.versions == PINS and quiet
    want = kda_recurrent(*inputs)[0]
    assert torch.equal(peers.kda(*inputs), want) and torch.allclose(peers.fla(*inputs), want, atol=1e-6)
    one = scalar_gates(inputs)
    assert torch.equal(peers.gated_delta(*one), kda_recurrent(*spread_gates(one))[0])


def test_pins_are_those_of_the_requirements():
    text = (ROOT / "requirements-bench.txt").read_text(encoding="utf-8")
    assert dict(re.findall(r"([\w-]+)==([\d.]+)", text)) == PINS
    assert peers_module.INSTALL_FLA in text


def test_padding_changes_nothing():
    lengths = []

    def picky(q, k, v, g, beta):
        lengths.append(k.shape[1])
        return kda_recurrent(q, k, v, g, beta)
    for T in (1, 63, 64):
        inputs = kda_inputs(Shape(1, T, 1, 4, 4))
        assert torch.allclose(padded(picky, FLA_CHUNK)(*inputs), kda_recurrent(*inputs)[0], atol=1e-6)
    assert lengths == [64, 64, 64]


def test_name_of_the_processor(tmp_path):
    file = tmp_path / "cpuinfo"
    file.write_text("processor : 0\nmodel name\t: Abacus 3000\n", encoding="utf-8")
    assert cpu_name(file) == "Abacus 3000"
    assert cpu_name(tmp_path / "nothing")
