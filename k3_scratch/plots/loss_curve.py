"""The loss over training."""

import numpy as np

from k3_scratch.plots.style import INK, PARTS, PlotError, as_array, label_ends, need_rising, new_figure, styled
from k3_scratch.shapes import check_shapes


def running_mean(values, window):
    """Mean of the last `window` values, of fewer at the start.          [n] -> [n]"""
    total = np.concatenate([[0.0], np.cumsum(values)])
    last = np.arange(1, len(values) + 1)
    first = np.maximum(last - window, 0)
    return (total[last] - total[first]) / (last - first)


@styled
def loss_curve(steps, loss, *, validation_steps=None, validation_loss=None, learning_rate=None, marks=None):
    """Look at how the bold mean falls and whether the validation squares stay on it.

    steps [n], loss [n]                        training loss at each step, in nats per token
    validation_steps [m], validation_loss [m]  loss on text held back, or None
    learning_rate [n]                          drawn in a strip below, or None
    marks {step: text}                         dashed lines with a word each, or None
    Raises ShapeError or PlotError when lengths disagree or steps do not rise.
    """
    steps, loss = as_array("loss_curve", "steps", steps), as_array("loss_curve", "loss", loss)
    check_shapes("loss_curve", steps=(steps, "n"), loss=(loss, "n"))
    need_rising("loss_curve", "steps", steps)
    if (validation_steps is None) != (validation_loss is None):
        raise PlotError("loss_curve: validation_steps and validation_loss must be given together, or neither")

    figure = new_figure(8, 4.4 if learning_rate is None else 5.4)
    rows = figure.add_gridspec(2, 1, height_ratios=(4, 1)) if learning_rate is not None else None
    axes = figure.add_subplot(rows[0] if rows is not None else 111)
    window = max(1, len(loss) // 40)
    mean = running_mean(loss, window)
    axes.plot(steps, loss, color=PARTS["KDA"], alpha=0.3, linewidth=0.8, label="each step")
    axes.plot(steps, mean, color=PARTS["KDA"], linewidth=2.2, label="running mean")
    ends, labels, colours = [mean[-1]], ["training,\n" + _mean_of(window)], [PARTS["KDA"]]
    if validation_loss is not None:
        held = as_array("loss_curve", "validation_loss", validation_loss)
        at = as_array("loss_curve", "validation_steps", validation_steps)
        check_shapes("loss_curve", validation_steps=(at, "m"), validation_loss=(held, "m"))
        axes.plot(at, held, color=PARTS["mix"], marker="s", linestyle=(0, (4, 2)), linewidth=1.3, label="validation")
        ends, labels, colours = [*ends, held[-1]], [*labels, "validation"], [*colours, PARTS["mix"]]
    axes.set_ylabel("loss (nats per token)")
    axes.set_title(f"The loss goes from {mean[0]:.2f} to {mean[-1]:.2f}", pad=24 if marks else 8)
    axes.grid(True, axis="y")
    axes.margins(x=0.01)
    _mark(axes, marks)

    last = axes
    if learning_rate is not None:
        rate = as_array("loss_curve", "learning_rate", learning_rate)
        check_shapes("loss_curve", steps=(steps, "n"), learning_rate=(rate, "n"))
        last = figure.add_subplot(rows[1], sharex=axes)
        last.fill_between(steps, rate, color=PARTS["plain"], alpha=0.25, linewidth=0)
        last.plot(steps, rate, color=PARTS["plain"], linewidth=1.4, label="learning rate")
        last.set_ylim(0, 1.15 * max(rate.max(), 1e-12))
        last.set_ylabel("learning\nrate")
        last.ticklabel_format(axis="y", style="sci", scilimits=(-2, 3))
        axes.tick_params(labelbottom=False)
    last.set_xlabel("training step")
    figure.get_layout_engine().execute(figure)
    label_ends(axes, ends, labels, colours)
    return figure


def _mean_of(window):
    return "every step" if window == 1 else f"mean of {window}"


def _mark(axes, marks):
    for step, text in sorted((marks or {}).items()):
        axes.axvline(step, color=INK, linewidth=0.9, linestyle=(0, (2, 2)))
        axes.text(step, 1.015, text, transform=axes.get_xaxis_transform(), ha="center", va="bottom", fontsize=8.5)
