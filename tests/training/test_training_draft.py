"""The draft: the first layer of a model with its head, and a little training that brings it closer."""

import pytest
import torch

from k3_scratch.config import preset
from k3_scratch.generate import generate
from k3_scratch.model import K3
from k3_scratch.pretrained import pretrained
from k3_scratch.serving.speculative import ModelDraft, speculate
from k3_scratch.tasks.corpus import Corpus
from k3_scratch.tasks.vocabulary import encode
from k3_scratch.training.draft import first_layer, train_draft


@pytest.fixture(scope="module")
def mini():
    return pretrained("mini")


def test_the_first_layer_is_a_copy(mini):
    draft = first_layer(mini)
    assert (draft.config.num_layers, draft.config.mla_layers, len(draft.layers)) == (1, (), 1)
    weights = mini.state_dict()
    for name, x in draft.state_dict().items():
        assert torch.equal(x, weights[name])
        assert x.data_ptr() != weights[name].data_ptr()


@pytest.mark.parametrize("changes", [{"first_k_dense": 0}, {"mla_layers": (0, 3)}, {"attn_res_block_size": None}])
def test_the_layer_stays_what_it_is(changes):
    model = K3(preset("nano").replace(**changes), seed=2).double()
    draft = first_layer(model)
    assert draft.config.is_mla(0) == model.config.is_mla(0) and draft.config.is_dense(0) == model.config.is_dense(0)
    assert draft.embed_tokens.weight.dtype == torch.float64
    assert generate(draft, [3, 4, 5], 4) == generate(first_layer(model), [3, 4, 5], 4)


def test_training_brings_it_closer_and_leaves_the_model_alone(mini):
    before = {name: x.clone() for name, x in mini.state_dict().items()}
    draft, losses = train_draft(mini, Corpus(families=("addition",)), steps=12, batch_size=4)
    assert len(losses) == 12 and sum(losses[-3:]) < 0.8 * sum(losses[:3])
    assert not draft.training and not mini.training
    assert all(torch.equal(x, before[name]) for name, x in mini.state_dict().items())
    again, _ = train_draft(mini, Corpus(families=("addition",)), steps=12, batch_size=4)
    assert all(torch.equal(x, y) for x, y in zip(draft.parameters(), again.parameters(), strict=True))
    for question in ("31+45=", "8+7=", "copy abc>"):
        prompt = encode(question)
        assert speculate(mini, ModelDraft(draft), prompt, 8).tokens == generate(mini, prompt, 8)
