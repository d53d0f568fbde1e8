"""Rows as a table for the terminal and for Markdown, and the files of a run."""

import json
import math
from pathlib import Path

from k3_scratch.bench.figures import write_figures
from k3_scratch.training.checkpoint import write_text

HEADS = ("measurement", "floor", "target", "measured", "quartiles", "floor met", "target met")
UNITS = {"x": "×", "": ""}


def table(rows):
    """A text table, a line per row."""
    cells = [HEADS, *(_cells(row) for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(HEADS))]
    lines = ["  ".join(cell.ljust(width) if i == 0 else cell.rjust(width)
                       for i, (cell, width) in enumerate(zip(line, widths, strict=True))) for line in cells]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])


def markdown(rows, result):
    """The table with its notes, and what it was measured on."""
    gemm = result["gemm_gflops"]
    hardware, versions = result["hardware"], result["versions"]
    lines = ["# Benchmark", "",
             f"Plan: {result['plan']}, {result['rounds']} rounds after one to warm up, {hardware['threads']} thread, "
             "CPU time of the process. A value is a ratio of medians; the quartiles are of the single rounds.", "",
             "Shapes are B,T,H,K,V. Peers: transformers chunk_kimi_delta_attention, fla naive_chunk_kda, and the gated "
             "delta rule, transformers torch_chunk_gated_delta_rule (an easier problem: one decay per head).", "",
             "| " + " | ".join([*HEADS, "note"]) + " |", "|---|" + "---:|" * (len(HEADS) - 1) + "---|",
             *("| " + " | ".join([*_cells(row), row.remark.replace("|", "/")]) + " |" for row in rows), "",
             f"GEMM 1024³: {f'{gemm:.1f} GFLOP/s' if gemm else 'not measured'}. Processor: {hardware['cpu']}, "
             f"{hardware['cores']} cores, load {hardware['load_average_before']} before and "
             f"{hardware['load_average_after']} after.", "",
             "Versions: " + ", ".join(f"{name} {version}" for name, version in versions.items()) + ".", ""]
    return "\n".join(lines)


def write_result(rows, result, out):
    """results/bench.json, results/bench.md and the figures under `out`, each file in one move; -> [Path]"""
    folder = Path(out) / "results"
    folder.mkdir(parents=True, exist_ok=True)
    files = {folder / "bench.json": json.dumps(result, indent=1, allow_nan=False, ensure_ascii=False) + "\n",
             folder / "bench.md": markdown(rows, result)}
    for path, text in files.items():
        write_text(path, text)
    return [*files, *write_figures(result, out)]


def missed_targets(rows):
    """A line for each row that misses its target and says why."""
    return [f"{row.name}: {row.goal.why}" for row in rows if row.met_target is False and row.goal.why]


def failed_floors(rows):
    """Names of the rows that miss their floor."""
    return [row.name for row in rows if row.met_floor is False]


def number(value, unit=""):
    """Three digits that count; small numbers as 1.4e-06.

    >>> number(12.345, "x"), number(0.00000142), number(1234.5, "ms"), number(float("inf"))
    ('12.3×', '1.4e-06', '1234 ms', 'not finite')
    """
    if value is None:
        return "–"
    if not math.isfinite(value):
        return "not finite"
    if value != 0 and abs(value) < 1e-3:
        text = f"{value:.1e}"
    else:
        digits = max(0, 2 - math.floor(math.log10(abs(value)))) if value else 0
        text = f"{value:.{digits}f}"
    return text + UNITS.get(unit, f" {unit}")


def _cells(row):
    goal = row.goal
    bounds = ["–" if bound is None else f"{'≥' if goal.direction == '>=' else '≤'} {bound:g}"
              for bound in (goal.floor, goal.target)]
    quartiles = "–" if row.low is None else f"{number(row.low)} … {number(row.high)}"
    met = [{None: "–", True: "yes", False: "NO"}[each] for each in (row.met_floor, row.met_target)]
    return (row.name, *bounds, number(row.value, row.unit), quartiles, *met)
