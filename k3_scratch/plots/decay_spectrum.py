"""How long each channel of the KDA memory remembers."""

import numpy as np
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator

from k3_scratch.plots.style import (
    DASHES,
    INK,
    PETROFF10,
    PlotError,
    as_array,
    label_ends,
    need_named,
    new_figure,
    styled,
)
from k3_scratch.shapes import check_shapes

COLUMNS = 4


def half_life(alpha):
    """Tokens after which a channel holds half of what it held: log(1/2) / log(alpha). NaN where alpha is 1."""
    with np.errstate(divide="ignore"):
        return np.where(alpha < 1, np.log(0.5) / np.log(np.where(alpha < 1, alpha, 0.5)), np.nan)


@styled
def decay_spectrum(decay):
    """Look at the spread: a head with a steep line keeps some channels for long and clears others at once.

    decay {layer name: alpha [H, K]}: mean decay of each channel, above 0 and at most 1; 1 forgets nothing.
    Each line is one head with its channels sorted; above alpha, below the same as a half-life in tokens.
    Raises PlotError for an empty dict or values outside (0, 1], ShapeError when alpha is not [H, K].
    """
    need_named("decay_spectrum", "decay", decay, "alpha [H, K]")
    spectra = {}
    for name, alpha in decay.items():
        alpha = as_array("decay_spectrum", f"decay[{name!r}]", alpha)
        check_shapes("decay_spectrum", **{f"decay[{name!r}]": (alpha, "H K")})
        if not (alpha.min() > 0 and alpha.max() <= 1):
            raise PlotError(f"decay_spectrum: decay[{name!r}] must lie above 0 and at most 1 (alpha = e^g, not g), "
                            f"but it runs from {alpha.min():g} to {alpha.max():g}")
        spectra[name] = np.sort(alpha, axis=1)

    columns = min(len(spectra), COLUMNS)
    lines = -(-len(spectra) // columns)
    figure = new_figure(max(6.0, 3.2 * columns + 0.6), 4.9 * lines + 0.4)
    grid = figure.add_gridspec(2 * lines, columns)
    lives = half_life(np.concatenate([alpha.ravel() for alpha in spectra.values()]))
    known = lives[np.isfinite(lives)]
    limits = (0.6 * known.min(), 1.8 * known.max()) if known.size else (0.5, 2)
    lowest = min(alpha.min() for alpha in spectra.values())
    pending = []
    for position, (name, alpha) in enumerate(spectra.items()):
        row, column = 2 * (position // columns), position % columns
        upper = figure.add_subplot(grid[row, column])
        lower = figure.add_subplot(grid[row + 1, column], sharex=upper)
        few = len(alpha) <= 8
        for head, values in enumerate(alpha):
            look = {"color": PETROFF10[head % 10], "linestyle": DASHES[head % 4], "alpha": 1.0 if few else 0.45,
                    "linewidth": 1.8 if few else 0.9, "label": f"head {head}"}
            upper.plot(np.arange(len(values)), values, **look)
            lower.plot(np.arange(len(values)), half_life(values), **look)
        upper.set_title(str(name), fontsize=10)
        upper.set_ylim(lowest - 0.04 * (1 - lowest) - 1e-4, 1 + 0.04 * (1 - lowest) + 1e-4)
        lower.set_yscale("log")
        lower.set_ylim(*limits)
        lower.yaxis.set_major_locator(LogLocator(base=10, subs=(1, 2, 5) if limits[1] / limits[0] < 300 else (1,)))
        lower.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
        lower.yaxis.set_minor_formatter(FuncFormatter(lambda value, _: ""))
        lower.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=5))
        lower.set_xlabel("channel, fastest first")
        upper.tick_params(labelbottom=False)
        for axes in (upper, lower):
            axes.grid(True)
            axes.margins(x=0.01)
        if column == 0:
            upper.set_ylabel("decay α per token")
            lower.set_ylabel("half-life (tokens)")
        if few:
            ends = np.nan_to_num(half_life(alpha[:, -1]), nan=limits[1])
            pending.append((lower, ends, [f"head {head}" for head in range(len(alpha))],
                            [PETROFF10[head % 10] for head in range(len(alpha))]))
        else:
            upper.text(0.98, 0.06, f"{len(alpha)} heads", transform=upper.transAxes, ha="right", fontsize=9, color=INK)
    figure.suptitle("What each head keeps: long half-lives remember, short ones clear", x=0.01, ha="left", fontsize=11,
                    fontweight="bold")
    figure.get_layout_engine().execute(figure)
    for entry in pending:
        label_ends(*entry, size=8)
    return figure
