"""The learner's short cut has the loss and the gradient of the model itself, and its scores add up."""

import numpy as np
import pytest
import torch

from fastformer.data.batches import EncodedTextsWriter
from fastformer.modeling import FastformerConfig, FastformerForConditionalGeneration
from fastformer.tasks.summarization.data import DocumentCollator, Pairs
from fastformer.tasks.summarization.objective import SummaryLearner, validation_scores


@pytest.fixture
def batch():
    random = torch.Generator().manual_seed(0)
    ids = torch.randint(3, 40, (3, 9), generator=random)
    mask = torch.ones_like(ids)
    mask[1, 5:] = 0
    labels = torch.randint(3, 40, (3, 6), generator=random)
    labels[0, :2] = ids[0, 3:5]  # words to copy
    labels[2, 4:] = -100
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


@pytest.mark.parametrize(
    "settings",
    [{"copy_mechanism": True}, {"copy_mechanism": False}, {"copy_mechanism": True, "label_smoothing": 0.1},
     {"label_smoothing": 0.1}],
    ids=str,
)  # fmt: skip
def test_the_loss_is_the_models_own(batch, settings):
    torch.manual_seed(0)
    sizes = {"vocab_size": 40, "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 16}
    config = FastformerConfig(**sizes, hidden_dropout_prob=0.0, eos_token_id=1, bigram_buckets=64, **settings)
    learner = SummaryLearner(config)
    model = FastformerForConditionalGeneration(learner.config)
    model.load_state_dict(learner.state_dict())
    losses = [one.train()(**batch).loss for one in (learner, model)]
    assert losses[0].item() == pytest.approx(losses[1].item(), rel=1e-5)
    for loss in losses:
        loss.backward()
    theirs = dict(model.named_parameters())
    for name, parameter in learner.named_parameters():
        assert parameter.grad is not None, name
        torch.testing.assert_close(parameter.grad, theirs[name].grad, atol=1e-5, rtol=1e-4, msg=name)

    found = validation_scores(learner.eval()(**batch).logits.detach().numpy())
    assert found["log_likelihood"] == pytest.approx(-model.eval()(**batch).loss.item(), rel=1e-5)
    assert found["perplexity"] == pytest.approx(np.exp(-found["log_likelihood"]))
    assert 0 <= found["accuracy"] <= 1


def test_articles_and_summaries_come_apart_again(tmp_path):
    with EncodedTextsWriter(tmp_path / "documents") as writer:
        for ids in ([5, 6, 7, 8, 1], [5, 1], [9, 9, 4, 1]):
            writer.add(np.array(ids))
        encoded = writer.finish(np.array([2, 1, 3]))
    pairs = Pairs(encoded, np.array([2, 0]))
    batch = DocumentCollator(0)([pairs[0], pairs[1]])
    assert batch["input_ids"].tolist() == [[9, 0, 0], [5, 6, 7]]
    assert batch["attention_mask"].tolist() == [[1, 0, 0], [1, 1, 1]]
    assert batch["labels"].tolist() == [[9, 4, 1], [8, 1, -100]]
    assert pairs.lengths.tolist() == [4 + 7 * 3, 5 + 7 * 2]
