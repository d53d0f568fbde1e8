import pytest
from picture_helpers import run_arrays

from k3_scratch.plots.run_pictures import run_pictures
from k3_scratch.plots.style import PlotError

ALL = ["accuracy.png", "decay_spectrum.png", "depth_attention.png", "expert_load.png", "loss.png", "magnitudes.png"]


def test_all_pictures(tmp_path):
    paths = run_pictures(run_arrays(), tmp_path / "run")
    assert sorted(paths) == ALL == sorted(path.name for path in (tmp_path / "run").iterdir())
    assert all(paths[name].name == name for name in ALL)


def test_a_run_without_the_other_parts(tmp_path):
    """`validation_steps` belongs to the loss too, but alone it asks for no picture of the loss."""
    arrays = {key: run_arrays()[key] for key in ("validation_steps", "accuracy")}
    assert list(run_pictures(arrays, tmp_path)) == ["accuracy.png"]


def test_half_a_group_and_unknown_keys_raise(tmp_path):
    arrays = run_arrays()
    del arrays["load_layers"]
    with pytest.raises(PlotError, match="expert_load.png needs .*load_layers did not come"):
        run_pictures(arrays, tmp_path)
    with pytest.raises(PlotError, match="no use for 'losses'"):
        run_pictures({"losses": [1]}, tmp_path)
    assert list(tmp_path.iterdir()) == []
