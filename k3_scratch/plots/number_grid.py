"""What pictures of a small memory are made of: a matrix with its numbers, bars for what each row keeps, titles."""

import numpy as np

from k3_scratch.plots.style import FAINT, PETROFF10, PlotError, ink_on

LARGEST = 8              # rows and columns of a state whose numbers are still readable


def number_grid(axes, matrix, limit, edge=FAINT):
    """Draw a small matrix [rows, columns] with its numbers; signed colours, white is zero, deep is +-1.25 limit."""
    image = axes.imshow(matrix, cmap="RdBu_r", vmin=-1.25 * limit, vmax=1.25 * limit, aspect="auto")
    for (row, column), value in np.ndenumerate(matrix):
        text = "0" if abs(value) < 5e-3 else f"{value:.2f}".rstrip("0").rstrip(".").replace("-", "−")
        axes.text(column, row, text, ha="center", va="center", fontsize=9 if len(text) < 5 else 7.5,
                  color=ink_on(image.cmap(image.norm(value))))
    axes.set_xticks(np.arange(1, matrix.shape[1]) - 0.5)
    axes.set_yticks(np.arange(1, matrix.shape[0]) - 0.5)
    axes.tick_params(length=0, labelbottom=False, labelleft=False)
    axes.grid(True, color="white", linewidth=1)
    axes.spines[:].set_visible(True)
    axes.spines[:].set_color(edge)


def kept_bars(figure, decay, place):
    """Draw how much of each row is kept, decay [K], at `place` (left, bottom, width, height of the figure).

    A full bar keeps all.
    """
    axes = figure.add_axes(place)
    axes.barh(np.arange(len(decay)), decay, color=PETROFF10[0], height=0.5)
    axes.set_xlim(0, 1)
    axes.set_ylim(len(decay) - 0.5, -0.5)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_color(FAINT)
    axes.set_title("kept", fontsize=8, loc="center", fontweight="normal", pad=2)
    return axes


def titles_of_states(function, states, T, titles=None):
    """A title for each of T tokens, "token 1" and so on for None, to write over a memory's states [T + 1, K, V].

    Raises PlotError for another number of states or titles, and for states too large for their numbers to be read.
    """
    titles = [f"token {t + 1}" for t in range(T)] if titles is None else list(titles)
    if len(states) != T + 1 or len(titles) != T:
        raise PlotError(f"{function}: states must be [T + 1, K, V] and titles [T] with T = {T}, "
                        f"but {len(states)} states and {len(titles)} titles came")
    if max(states.shape[1:]) > LARGEST:
        raise PlotError(f"{function}: states must have at most {LARGEST} rows and columns, "
                        f"but {list(states.shape[1:])} came")
    return titles
