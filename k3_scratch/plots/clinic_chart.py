"""Trainings as patients: a row for each, a column for each instrument, the healthy one in grey behind all."""

import numpy as np

from k3_scratch.plots.bench_axes import plain_log
from k3_scratch.plots.style import PARTS, PlotError, as_array, edges, new_figure, styled
from k3_scratch.shapes import check_shapes

INSTRUMENTS = {"loss": "loss", "norm": "gradient norm", "load": "load of each expert", "half_life": "half-lives",
               "keys": "length of keys"}
GREY = "#94a4a2"
LIVES = np.geomspace(0.1, 10_000, 26)                # borders of the bins of half-lives, in tokens


@styled
def clinic_chart(steps, watched, patients, tell=None):
    """Read a row from left to right and compare each panel with the grey of the healthy run; a thick frame tells.

    steps [n], watched [w]     updates at which losses and norms, and loads and keys, were written down
    patients   {name: {"loss" [seeds, n], "norm" [seeds, n], "load" [w, E], "half_life" [seeds, channels],
               "keys" [2, w]: mean and largest length}}; the first patient is the healthy one
    tell       {name: instrument}: the panel by which one recognises the patient
    Raises PlotError for an instrument that is not known or missing, ShapeError for other lengths.
    """
    tell = tell or {}
    for name, patient in patients.items():
        if set(patient) != set(INSTRUMENTS) or tell.get(name, "loss") not in INSTRUMENTS:
            raise PlotError(f"clinic_chart: {name!r} must have {', '.join(INSTRUMENTS)}, and tell one of them, but "
                            f"{', '.join(patient)} and {tell.get(name)!r} came")
    if not patients:
        raise PlotError("clinic_chart: patients must hold at least the healthy one, but none came")
    patients = {name: {key: as_array("clinic_chart", key, value) for key, value in patient.items()}
                for name, patient in patients.items()}
    steps, watched = as_array("clinic_chart", "steps", steps), as_array("clinic_chart", "watched", watched)
    for patient in patients.values():
        check_shapes("clinic_chart", steps=(steps, "n"), watched=(watched, "w"), loss=(patient["loss"], "s n"),
                     norm=(patient["norm"], "s n"), load=(patient["load"], "w E"), keys=(patient["keys"], "two w"),
                     half_life=(patient["half_life"], "s c"))
    healthy = next(iter(patients.values()))
    figure = new_figure(12.4, 0.9 + 1.75 * len(patients))
    grid = figure.subplots(len(patients), len(INSTRUMENTS), squeeze=False, sharex="col")
    for row, (name, patient) in enumerate(patients.items()):
        for column, key in enumerate(INSTRUMENTS):
            axes = grid[row, column]
            _DRAW[key](axes, steps if key in ("loss", "norm") else watched, patient[key], healthy[key])
            axes.tick_params(labelsize=8)
            if row == 0:
                axes.set_title(INSTRUMENTS[key], fontsize=10)
            if row == len(patients) - 1:
                axes.set_xlabel("tokens" if key == "half_life" else "update", fontsize=9)
            if tell.get(name) == key:
                axes.patch.set_facecolor("#fff6e0")
                for spine in axes.spines.values():
                    spine.set(visible=True, color=PARTS["MLA"], linewidth=3)
        grid[row, 0].set_ylabel(name, fontsize=10, fontweight="bold")
    _same_heights(grid, patients)
    return figure


def _lines(axes, x, runs, healthy):
    axes.plot(x, healthy.T, color=GREY, linewidth=0.8)
    axes.plot(x, runs.T, color=PARTS["mix"], linewidth=1.1)
    axes.grid(True, axis="y")


def _load(axes, x, load, healthy):
    share = load / load.mean(axis=1, keepdims=True)
    axes.pcolormesh(edges(x), np.arange(share.shape[1] + 1) - 0.5, share.T, cmap="cividis", vmin=0, vmax=2)
    axes.set_yticks([0, share.shape[1] - 1])
    axes.text(0.97, 0.93, f"busiest {share[-1].max():.1f}\nidlest {share[-1].min():.1f}", transform=axes.transAxes,
              ha="right", va="top", fontsize=8,
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 1.5})


def _half_lives(axes, _, lives, healthy):
    for values, look in ((healthy, {"color": GREY, "alpha": 0.55}), (lives, {"color": PARTS["mix"], "alpha": 0.75})):
        known = values[np.isfinite(values)]
        share = np.histogram(np.clip(known, LIVES[0], LIVES[-1] * 0.999), LIVES)[0] / values.size
        axes.stairs(share, LIVES, fill=True, **look)
    plain_log(axes, "x")
    axes.set_xlim(LIVES[0], LIVES[-1])
    axes.set_yticks([])
    median = np.nanmedian(lives)
    axes.text(0.97, 0.93, f"median {median:,.0f}" if median >= 10 else f"median {median:.2g}",
              transform=axes.transAxes, ha="right", va="top", fontsize=8)


def _keys(axes, x, lengths, healthy):
    axes.plot(x, healthy[1], color=GREY, linewidth=3)
    for line, dash in zip(lengths, ("-", (0, (4, 1.5))), strict=True):
        axes.plot(x, line, color=PARTS["mix"], linestyle=dash, linewidth=1.5)
    if not np.allclose(lengths, 1, atol=0.02):
        for line, word in ((lengths[0], "mean"), (lengths[1], "longest")):
            axes.annotate(word, (x[-1], line[-1]), (-2, 3), textcoords="offset points", ha="right", fontsize=8)
    axes.grid(True, axis="y")


def _same_heights(grid, patients):
    """One scale a column for losses, norms and key lengths, so that rows can be compared."""
    for column, key in enumerate(INSTRUMENTS):
        if key in ("loss", "norm", "keys"):
            values = np.concatenate([patient[key].ravel() for patient in patients.values()])
            values = values[np.isfinite(values)]
            for axes in grid[:, column]:
                if key in ("norm", "keys"):
                    axes.set_ylim(0.6 * values.min(), 1.8 * values.max())
                    plain_log(axes)
                else:
                    axes.set_ylim(0, 1.08 * values.max())


_DRAW = {"loss": _lines, "norm": _lines, "load": _load, "half_life": _half_lives, "keys": _keys}
