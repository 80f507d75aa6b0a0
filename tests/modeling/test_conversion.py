"""The conversion model: what may not change an answer, and what must."""

import pytest
import torch
from transformers import AutoModel

from fastformer import available_mixers
from fastformer.modeling import FastformerConversionConfig, FastformerForConversion

SIZE = {
    "vocab_size": 50,
    "hidden_size": 16,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "max_position_embeddings": 12,
    "max_behaviors": 8,
    "head_size": 8,
    "initializer_range": 0.3,
    "hidden_dropout_prob": 0.0,
}


def build(**fields) -> FastformerForConversion:
    torch.manual_seed(0)
    return FastformerForConversion(FastformerConversionConfig(**{**SIZE, **fields})).eval()


def inputs() -> dict[str, torch.Tensor]:
    """Five texts, one of them without tokens, and three events, the last without behaviours."""
    random = torch.Generator().manual_seed(0)
    ids = torch.randint(1, 50, (5, 10), generator=random)
    mask = (torch.arange(10) < torch.tensor([10, 4, 0, 7, 1])[:, None]).long()
    return {
        "input_ids": ids * mask,
        "attention_mask": mask,
        "behaviors": torch.tensor([[0, 1, 2, 3, 1], [4, 3, 0, 0, 0], [0, 0, 0, 0, 0]]),
        "behavior_mask": torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0], [0, 0, 0, 0, 0]]),
        "ads": torch.tensor([3, 0, 1]),
    }


@pytest.mark.parametrize("mixer", available_mixers())
def test_company_and_padding_change_no_answer(mixer):
    model, batch = build(mixer=mixer), inputs()
    with torch.no_grad():
        together = model(**batch).logits
        assert together.isfinite().all()  # with an empty text, and with an event that has no behaviours
        for row in range(3):
            count = int(batch["behavior_mask"][row].sum())
            texts = [*batch["behaviors"][row, :count].tolist(), int(batch["ads"][row])]
            longest = max(1, int(batch["attention_mask"][texts].sum(dim=1).max()))
            alone = model(
                input_ids=batch["input_ids"][texts, :longest],
                attention_mask=batch["attention_mask"][texts, :longest],
                behaviors=torch.arange(max(1, count))[None],
                behavior_mask=torch.tensor([[1] * count or [0]]),
                ads=torch.tensor([len(texts) - 1]),
            ).logits
            torch.testing.assert_close(alone[0], together[row], atol=1e-5, rtol=1e-5)
        # Other content in padded places.
        other = {**batch, "input_ids": torch.where(batch["attention_mask"] > 0, batch["input_ids"], 7)}
        other["behaviors"] = torch.where(batch["behavior_mask"] > 0, batch["behaviors"], 4)
        torch.testing.assert_close(model(**other).logits, together, atol=1e-6, rtol=1e-6)


def test_padding_may_stand_on_the_left():
    model, batch = build(), inputs()
    left = {**batch, "behaviors": batch["behaviors"][1:2, [2, 3, 4, 0, 1]], "ads": batch["ads"][1:2]}
    left["behavior_mask"] = torch.tensor([[0, 0, 0, 1, 1]])
    with torch.no_grad():
        torch.testing.assert_close(model(**left).logits[0], model(**batch).logits[1])


def test_behaviours_their_order_and_the_ad_change_the_answer():
    model, batch = build(), inputs()
    with torch.no_grad():
        answer = model(**batch).logits[0]
        for name, value in (
            ("behaviors", torch.tensor([[1, 3, 2, 1, 0]])),
            ("behaviors", torch.tensor([[0, 1, 4, 3, 1]])),
            ("ads", torch.tensor([4])),
        ):
            changed = {**batch, name: torch.cat([value, batch[name][1:]])}
            assert (model(**changed).logits[0] - answer).abs() > 1e-4


def test_the_loss_is_binary_cross_entropy_and_reaches_every_weight():
    model, batch = build(num_numeric=2, category_sizes=[3, 4]).train(), inputs()
    side = {"numeric": torch.randn(3, 2), "categories": torch.tensor([[0, 3], [2, 1], [1, 0]])}
    labels = torch.tensor([1.0, 0.0, 1.0])
    output = model(**batch, **side, labels=labels)
    chances = output.logits.sigmoid()
    expected = -(labels * chances.log() + (1 - labels) * (1 - chances).log()).mean()
    torch.testing.assert_close(output.loss, expected)
    output.loss.backward()
    untouched = [name for name, one in model.named_parameters() if one.grad is None or not one.grad.any()]
    assert untouched == ["user_encoder.embeddings.word_embeddings.weight"]  # its tokens are vectors


def test_side_features_change_the_answer():
    model, batch = build(num_numeric=1, category_sizes=[3]), inputs()
    with torch.no_grad():
        side = {"numeric": torch.zeros(3, 1), "categories": torch.zeros(3, 1, dtype=torch.long)}
        answer = model(**batch, **side).logits
        assert (model(**batch, **{**side, "numeric": torch.ones(3, 1)}).logits - answer).abs().min() > 1e-5
        other = {**side, "categories": torch.full((3, 1), 2)}
        assert (model(**batch, **other).logits - answer).abs().min() > 1e-5


def test_both_levels_have_a_mixer_of_their_own():
    model = build(mixer="linear", user_mixer="transformer", num_user_layers=2, share_layers=False)
    assert type(model.fastformer.layers[0].mixer).__name__ != type(model.user_encoder.layers[0].mixer).__name__
    assert (len(model.fastformer.layers), len(model.user_encoder.layers)) == (1, 2)
    assert model.user_encoder.embeddings.position_embeddings.num_embeddings == 8
    assert model.user_encoder.embeddings.word_embeddings.num_embeddings == 1


def test_saved_and_loaded_gives_the_same_answers(tmp_path):
    model, batch = build(mixer="linear", user_mixer="fastformer"), inputs()
    model.save_pretrained(tmp_path)
    assert (tmp_path / "model.safetensors").is_file()
    again = AutoModel.from_pretrained(tmp_path).eval()
    assert isinstance(again, FastformerForConversion)
    assert torch.equal(again(**batch).logits, model(**batch).logits)


def test_longer_lists_than_the_model_has_positions_for_are_refused():
    batch = inputs()
    batch |= {"behaviors": torch.zeros(3, 9, dtype=torch.long), "behavior_mask": torch.ones(3, 9, dtype=torch.long)}
    with pytest.raises(ValueError, match="9 tokens but this model has learned positions for 8"):
        build()(**batch)
