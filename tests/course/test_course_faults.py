"""The planted faults of chapter 13 and the hunt after them.

Each fault passes the test of shapes, is seen by the technique it names, and disturbs its own probe alone.
"""

import os
import sys

import pytest
import torch

from k3_scratch.course.faults import FAULTS, LEVELS, WARM_UP, draw
from k3_scratch.course.faults import standing as machine
from k3_scratch.course.faults.fault import FaultError, planted
from k3_scratch.course.faults.package import FILES, healthy, load, package_texts
from k3_scratch.course.faults.techniques import TECHNIQUES, sees, shapes_only
from k3_scratch.course.hunt import Hunt, HuntError
from k3_scratch.layers.kda import kda_step

PARTS = {"kda", "chunk", "convolution", "mla", "moe", "situ", "balancing", "residuals", "norms", "cache", "masks",
         "documents", "head", "config", "training"}
QUESTIONS = [(technique, question) for technique, questions in TECHNIQUES.items() for question in questions]
every_fault = pytest.mark.parametrize("fault", FAULTS.values(), ids=lambda fault: fault.id)


@pytest.fixture(scope="module")
def kits():
    """kits(fault) -> the kit with this fault alone, made once."""
    made = {}

    def kit(fault):
        if fault.id not in made:
            made[fault.id] = load(planted([fault]))
        return made[fault.id]
    return kit


def test_the_table():
    faults = list(FAULTS.values())
    assert len(faults) >= 24 and {fault.part for fault in faults} == PARTS
    assert all(sum(fault.level == level for fault in faults) >= 5 for level in LEVELS)
    assert {fault.level for fault in faults} == set(LEVELS)
    assert {fault.technique for fault in faults} == set(TECHNIQUES)
    assert len({fault.id for fault in faults}) == len({fault.what for fault in faults}) == len(faults)
    assert all(fault.file in FILES and fault.changes and len(fault.what.split()) > 5 for fault in faults)


@pytest.mark.parametrize(("technique", "question"), QUESTIONS, ids=lambda value: getattr(value, "__name__", value))
def test_a_healthy_kit_passes(technique, question):
    assert question(healthy()) is True


def test_a_healthy_kit_has_good_shapes():
    assert shapes_only(healthy())


@every_fault
def test_no_test_of_shapes_sees_it_and_its_technique_does(fault, kits):
    assert shapes_only(kits(fault))
    assert sees(fault.technique, kits(fault))


@every_fault
def test_its_probe_is_disturbed_by_it_alone(fault, kits):
    """By no other fault in its file; files are asked one by one, so that others do not matter."""
    for other in FAULTS.values():
        if other.file == fault.file:
            same = machine._alike(fault.probe, kits(other), machine._probed(fault.id))
            assert same == (other is not fault), other.id


@every_fault
def test_its_texts_fit(fault):
    texts = planted([fault])
    assert [file for file in texts if texts[file] != package_texts()[file]] == [fault.file]
    assert max(map(len, texts[fault.file].split("\n"))) <= 120
    assert not any(word in new.casefold() for _, new in fault.changes for word in ("fault", "wrong", "mistake", "bug"))
    with pytest.raises(FaultError, match=f"{fault.id}: its old text must stand in {fault.file} once, but .* 0 times"):
        planted([fault], {**texts, fault.file: ""})


def test_the_same_seed_the_same_faults():
    drawn = [tuple(fault.id for fault in draw(seed)) for seed in range(60)]
    assert drawn == [tuple(fault.id for fault in draw(seed)) for seed in range(60)]
    assert len(set(drawn)) >= 58
    assert len({name for names in drawn for name in names}) >= len(FAULTS) - 3           # nearly all come up
    for names in drawn:
        faults = [FAULTS[name] for name in names]
        assert [fault.level for fault in faults] == list(LEVELS) and WARM_UP not in faults
        assert len({fault.file for fault in faults}) == len({fault.part for fault in faults}) == 5
        planted(faults)
    for seed in (-1, 1.0, True, "1"):
        with pytest.raises(ValueError, match="seed must be a whole number from 0 on"):
            draw(seed)


# ---- kits

def test_kits_share_nothing(tmp_path):
    before = set(sys.modules)
    one, other = load(package_texts()), load(package_texts())
    assert one.model.K3 is not other.model.K3 and set(sys.modules) == before
    assert one.layers.kda.kda_step is not kda_step
    kept = load(package_texts(), name="k3_kept", folder=tmp_path)
    assert sys.modules["k3_kept.layers.kda"] is kept.layers.kda and kept.model.__file__ == str(tmp_path / "model.py")
    with pytest.raises(ZeroDivisionError):
        load({**package_texts(), "layers/kda.py": "1 / 0"}, name="k3_kept")
    assert not [name for name in sys.modules if name.startswith("k3_kept")] and sys.meta_path[0].__class__.__name__ != \
        "_Texts"


def test_a_kit_uses_its_own_files_only():
    """What a kit still imports of k3_scratch holds no part of the text model."""
    texts = package_texts()
    left = {line.split()[1] for text in texts.values() for line in text.split("\n")
            if line.strip().startswith("from k3_scratch")}
    assert left == {"k3_scratch.shapes", "k3_scratch.tasks.vocabulary", "k3_scratch.vision"}


# ---- the hunt

@pytest.fixture
def hunt(tmp_path):
    return Hunt(1, tmp_path / "hunt_1")


def right(hunt, fault):
    (hunt.folder / fault.file).write_text(package_texts()[fault.file], encoding="utf-8")


def said(hunt, capsys):
    hunt.left()
    return capsys.readouterr().out


def test_a_hunt_from_the_first_fault_to_the_last(hunt, capsys):
    assert said(hunt, capsys) == "hunt 1: 5 of 5 faults left\n"
    assert shapes_only(hunt.package())
    for number, fault in enumerate(draw(1), start=1):
        right(hunt, fault)
        assert said(hunt, capsys) == f"hunt 1: {5 - number} of 5 faults left\n"
    hunt.reveal()
    text = capsys.readouterr().out
    assert all(fault.what in text for fault in draw(1)) and "covered" not in text


def test_what_is_left_stays_covered(hunt, capsys):
    right(hunt, draw(1)[2])
    hunt.reveal()
    text = capsys.readouterr().out
    assert draw(1)[2].what in text and text.count("still covered") == 4
    assert not any(fault.what in text or fault.part in text for fault in draw(1) if fault.level != 3)


def test_giving_up_mends_and_tells(hunt, capsys):
    hunt.give_up()
    text = capsys.readouterr().out
    assert all(fault.what in text for fault in draw(1))
    assert said(hunt, capsys) == "hunt 1: 0 of 5 faults left\n"


OTHER_CODE = {                           # mended in other words: (what stands in the package, what is written instead)
    "read_before_the_write": ("    state = state + (beta.unsqueeze(-1) * k).unsqueeze(-1) * error.unsqueeze(-2)\n",
                              '    state = state + torch.einsum("bh,bhk,bhv->bhkv", beta, k, error)\n'),
    "balance_with_the_wrong_sign": ("    new = -margin.topk(rank, dim=0).values[-1]\n",
                                    "    new = torch.sort(-margin, dim=0).values[rank - 1]\n"),
    "norm_of_the_sum": ("rsqrt(torch.linalg.vecdot(x, x).div_(x.shape[-1]).add_(eps)).unsqueeze(-1)",
                        "rsqrt((x * x).mean(-1, keepdim=True) + eps)"),
    "gradient_of_the_solve": ("        d_L = (d_right @ solved.mT).tril_(-1).neg_()\n",
                              "        d_L = torch.tril(-d_right @ solved.mT, -1)\n"),
    "tied_head": ("            self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)\n",
                  "            self.norm = RMSNorm(eps=config.rms_norm_eps, size=config.hidden_size)\n"),
}


@pytest.mark.parametrize("name", OTHER_CODE)
def test_mended_with_other_code_is_mended(name):
    fault, (old, new) = FAULTS[name], OTHER_CODE[name]
    text = package_texts()[fault.file]
    assert text.count(old) == 1
    found = machine.standing({**planted([fault]), fault.file: text.replace(old, new)}, [fault])
    assert found == machine.Standing()


def test_a_new_mistake_is_noticed_wherever_it_is():
    fault = FAULTS["read_before_the_write"]
    healthy_texts, sick = package_texts(), planted([fault])
    new = ("layers/situ.py", "layers/kda_attention.py", "cache.py")
    texts = planted([FAULTS["bounds_swapped"], FAULTS["one_scalar_decay"], FAULTS["snapshot_good_for_once"]], sick)
    found = machine.standing(texts, [fault])
    assert (found.left, found.broken) == ((fault,), tuple(sorted(new)))
    texts = {**healthy_texts, "layers/kda.py": healthy_texts["layers/kda.py"].replace("g.exp()", "(2 * g).exp()")}
    assert machine.standing(texts, [fault]) == machine.Standing((), ("layers/kda.py",))  # mended, and spoilt elsewhere
    texts = {**healthy_texts, "layers/feed_forward.py": healthy_texts["layers/feed_forward.py"].replace(
        "self.down_proj(", "0.5 * self.down_proj(")}
    assert machine.standing(texts, [fault]) == machine.Standing((), ("layers/feed_forward.py",))


@pytest.mark.parametrize(("file", "text", "message"), [
    ("layers/kda.py", "def (", "it does not load: SyntaxError in line 1 of layers/kda.py"),
    ("model.py", "1 / 0", "it does not load: ZeroDivisionError: division by zero"),
    ("layers/mla.py", "import nothing_of_this_name", "it does not load: ModuleNotFoundError")])
def test_what_does_not_load_is_told(hunt, capsys, file, text, message):
    (hunt.folder / file).write_text(text, encoding="utf-8")
    assert message in said(hunt, capsys)
    (hunt.folder / file).unlink()
    assert f"{file} is missing" in said(hunt, capsys)


def test_edits_are_kept_and_seen_at_once(hunt, capsys):
    """Twice within a second and with the same number of characters: no compiled file is in the way."""
    for scale in ("0.5", "0.7", "0.9"):
        hunt.edit("layers/kda.py", hunt.read("layers/kda.py").split('"""')[1][:20], f"{scale} of a text, about  ")
        assert hunt.package().layers.kda.__doc__.startswith(scale)
    again = Hunt(1, hunt.folder)
    assert again.read("layers/kda.py") == hunt.read("layers/kda.py")
    assert not list(hunt.folder.rglob("*.pyc")) and not list(hunt.folder.parent.glob(".hunt*"))
    assert repr(again).startswith("Hunt 1: ") and "in the folder hunt_1" in repr(again)


def test_edit_refuses_and_repeats(hunt, capsys):
    old = "from .kda_chunk import kda_chunk\n"
    for _ in range(2):
        hunt.edit("layers/kda.py", old, old + "# seen\n")
    assert hunt.read("layers/kda.py").count("# seen") == 1
    with pytest.raises(HuntError, match="old must stand in layers/kda.py once, but it stands there 0 times"):
        hunt.edit("layers/kda.py", "no such text", "another")
    with pytest.raises(HuntError, match="file must be one of .*model.py.*but 'kda.py' came"):
        hunt.read("kda.py")
    hunt.lines("layers/kda.py", "def kda_step", around=1)
    assert "def kda_step(" in capsys.readouterr().out
    with pytest.raises(HuntError, match="word must occur in model.py"):
        hunt.lines("model.py", "no such word")


def test_where_a_hunt_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("K3_HUNTS", raising=False)
    assert Hunt(3).folder.parent != tmp_path and os.listdir(tmp_path) == []              # a script keeps nothing
    monkeypatch.setenv("K3_HUNTS", "")
    monkeypatch.setattr("k3_scratch.course.hunt.in_a_notebook", lambda: True)
    assert Hunt(3).folder.parent != tmp_path and os.listdir(tmp_path) == []              # nor does a build
    monkeypatch.delenv("K3_HUNTS")
    assert Hunt(3).folder == tmp_path / "hunt_3"                         # a reader finds it beside the notebook
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(HuntError, match="the folder other holds something else"):
        Hunt(3, tmp_path / "other")


def test_the_warm_up_is_new_every_time(capsys):
    hunt = Hunt.warm_up()
    right(hunt, WARM_UP)
    assert said(hunt, capsys) == "hunt warm-up: 0 of 1 faults left\n"
    assert said(Hunt.warm_up(), capsys) == "hunt warm-up: 1 of 1 faults left\n"
    assert isinstance(hunt.model(vocab_size=29)(torch.tensor([[1, 2]])), torch.Tensor)
