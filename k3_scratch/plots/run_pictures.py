"""All pictures of one training run."""

from pathlib import Path

from k3_scratch.plots.accuracy_curves import accuracy_curves
from k3_scratch.plots.decay_spectrum import decay_spectrum
from k3_scratch.plots.depth_triangle import depth_triangle
from k3_scratch.plots.expert_load import expert_load
from k3_scratch.plots.loss_curve import loss_curve
from k3_scratch.plots.magnitudes import magnitudes
from k3_scratch.plots.style import PlotError, save

# file name, the keys of its arrays, how they become a picture
GROUPS = (
    ("loss.png", ("train_steps", "train_loss", "learning_rate", "validation_steps", "validation_loss"),
     lambda steps, loss, rate, at, held: loss_curve(steps, loss, validation_steps=at, validation_loss=held,
                                                    learning_rate=rate)),
    ("accuracy.png", ("validation_steps", "accuracy"), accuracy_curves),
    ("expert_load.png", ("load_steps", "load", "load_layers"), expert_load),
    ("depth_attention.png", ("depth_weights", "depth_queries", "depth_sources"), depth_triangle),
    ("decay_spectrum.png", ("decay",), decay_spectrum),
    ("magnitudes.png", ("magnitude_names", "magnitude_input", "magnitude_output"),
     lambda names, before, after: magnitudes(names, {"input": before, "output": after})),
)
SHARED = ("validation_steps",)      # belongs to two pictures, so it alone asks for neither
KEYS = tuple(dict.fromkeys(key for _, keys, _ in GROUPS for key in keys))


def run_pictures(arrays, folder):
    """Write every picture the run has arrays for; returns {name: path}.

    arrays   dict with the keys in KEYS. train_steps, train_loss, learning_rate [n]; validation_steps,
             validation_loss [m]; accuracy {family: [m]}; load_steps [s], load [s, layers, E], load_layers [layers];
             depth_weights [Q, N], depth_queries [Q], depth_sources [N]; decay {layer: [H, K]}; magnitude_names,
             magnitude_input, magnitude_output [n].
    A picture is left out only when none of its own keys is there (a run without MoE layers has no load); a group that
    is there in part, or a key that nobody knows, raises PlotError. Wrong shapes raise as in the single pictures.
    """
    unknown = sorted(set(arrays) - set(KEYS))
    if unknown:
        raise PlotError(f"run_pictures: arrays has no use for {unknown[0]!r}; known keys are {', '.join(KEYS)}")
    wanted = []
    for name, keys, draw in GROUPS:
        if not any(key in arrays for key in keys if key not in SHARED):
            continue
        missing = [key for key in keys if key not in arrays]
        if missing:
            raise PlotError(f"run_pictures: {name} needs {', '.join(keys)}, but {', '.join(missing)} did not come")
        wanted.append((name, draw, [arrays[key] for key in keys]))
    return {name: save(draw(*values), Path(folder) / name) for name, draw, values in wanted}
