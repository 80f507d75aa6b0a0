"""A preset of the user's own: what is wrong with it is one line that names the file and the key."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from fastformer.errors import UserError
from fastformer.tasks.base import declared, get_task


@pytest.fixture
def settings(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def settings(text, task="classification", name="mine.toml", **given):
        Path(name).write_text(text, encoding="utf-8")
        return get_task(task).settings(name, **given)

    return settings


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("epochs = 3", "epochs is a setting of training; write it under [training]"),
        (
            "when.mixer.linear.epochs = 3",
            "when.mixer.linear.epochs is a setting of training; write it under [when.mixer.linear.training]",
        ),
        ("max_length = 'long'", 'max_length is "long", not a whole number'),
        ("max_length = 2020-01-01", 'max_length is "2020-01-01", not a whole number'),
        ("max_lenght = 9", "unknown setting 'max_lenght'; did you mean 'max_length'?"),
        ("training = 3", "training is 3, not a table"),
        ("model = 3", "model is 3, not a table"),
        ("like = 3", "like is 3, not a string"),
        ("like = 'defualt'", "unknown preset 'defualt'; did you mean 'default'?"),
        ("like = 'mine.toml'", "like leads back to mine.toml (mine.toml -> mine.toml)"),
        ("when = 3", "when is 3, not a table"),
        ("when.mixer = 3", "when.mixer is 3, not a table"),
        ("when.mixer.linear = 3", "when.mixer.linear is 3, not a table"),
        ("[when.mixr.linear]", "unknown setting of when 'mixr'; did you mean 'mixer'?"),
        ("[when.model.linear]", "unknown setting of when 'model'"),
        ("when.mixer.linear.max_lenght = 9", "unknown setting of when.mixer.linear 'max_lenght'; did you"),
        ("when.mixer.linear.training.epochs = 0", "when.mixer.linear.training.epochs is 0; give at least 1"),
        ("training.epochs = 0", "training.epochs is 0; give at least 1"),
        ("training.learning_rate = -1", "training.learning_rate is -1; give at least 1e-09"),
        ("training.betas = [0.9]", "training.betas is a list, not [a finite number, a finite number]"),
        ("training.schedule = 'linaer'", "training.schedule is \"linaer\", not 'linear' or 'constant' or"),
        ("training.fill_by = 'token'", "training.fill_by is \"token\", not 'rows' or 'tokens'"),
        ("training.warmup = -1", "training.warmup is -1; give at least 0"),
        ("training.warmup = 5", "training.warmup is 5; give at most 0.99"),
        ("training.betas = [0.9, 1.5]", "training.betas is 1.5; give at most 0.999999"),
        ("training.weight_decay = -0.1", "training.weight_decay is -0.1; give at least 0"),
        ("training.max_grad_norm = 0", "training.max_grad_norm is 0; give at least 1e-09"),
        ("when.mixer.linear.passes = 0", "when.mixer.linear.passes is 0; give at least 1"),
        ("crop = 0", "crop is 0; give at least 1"),
        ("min_frequency = -1", "min_frequency is -1; give at least 0"),
        ("training.epoch = 3", "unknown setting of training 'epoch'; did you mean 'epochs'?"),
        ("model.hiden_size = 8", "unknown setting of the model 'hiden_size'; did you mean 'hidden_size'?"),
        ("model.hidden_size = '8'", 'model.hidden_size is "8", not a whole number'),
        ("model.hidden_size = -8", "model.hidden_size is -8; give at least 1"),
        ("model.num_hidden_layers = -1", "model.num_hidden_layers is -1; give at least 0"),
        ("model.num_attention_heads = 0", "model.num_attention_heads is 0; give at least 1"),
        ("model.hidden_dropout_prob = 2", "model.hidden_dropout_prob is 2; give at most 1"),
        ("model.norm = 'both'", "model.norm is \"both\", not 'post' or 'pre' or 'none'"),
    ],
)
def test_a_mistake_in_a_preset_is_one_line(settings, text, says):
    with pytest.raises(UserError) as caught:
        settings(text)
    assert str(caught.value).startswith(f"mine.toml: {says}")
    assert "\n" not in str(caught.value)


def test_the_file_with_the_mistake_is_named_not_the_one_that_is_like_it(settings):
    Path("base.toml").write_text("training.epochs = 0", encoding="utf-8")
    with pytest.raises(UserError, match=r"^base\.toml: training\.epochs is 0"):
        settings("like = 'base.toml'")
    Path("base.toml").write_text("like = 'mine.toml'", encoding="utf-8")
    with pytest.raises(UserError, match=r"^base\.toml: like leads back to mine.toml \(mine.toml -> base.toml -> mine"):
        settings("like = 'base.toml'")


def test_what_is_given_beside_a_preset_is_not_in_its_file(settings):
    with pytest.raises(UserError, match="^epochs is 0; give at least 1$"):
        settings("max_length = 9", epochs=0)


def test_a_file_of_all_settings_must_have_them_all(settings):
    with pytest.raises(UserError, match=r"^mine\.json: a setting is missing .*'history_length' and 'negatives'"):
        settings('{"max_length": 9}', "recommendation", "mine.json")


def test_a_preset_that_is_right_is_taken(settings):
    found = settings(
        """
        like = "encoder"
        training.betas = [0.8, 0.9]
        training.weight_decay = 0
        model.hidden_dropout_prob = 0
        when.mixer.fastformer.max_length = 7
        when.mixer.linear.max_length = 8
        """
    )
    assert (found.ngrams, found.max_length, found.training.betas) == (False, 7, (0.8, 0.9))
    assert type(found.model["hidden_dropout_prob"]) is float  # the configuration takes no whole number
    fim = settings("when.recommender.fim.model.cube_channels = [4, 2]", "recommendation", recommender="fim")
    assert fim.model["cube_channels"] == [4, 2]


def test_masked_words_pass_over_what_only_their_classifier_has(settings):
    assert settings("ngrams = true\nwhen.class_weight.balanced.max_length = 5\ncrop = 9", "masked-words").crop == 9
    for text, says in (
        ("ngram = true", "unknown setting 'ngram'"),
        ("[when.class_wieght.balanced]", "unknown setting of when 'class_wieght'"),
        ("when.mixer.linear.max_lenght = 9", "unknown setting of when.mixer.linear 'max_lenght'"),
    ):
        with pytest.raises(UserError, match=f"^mine.toml: {says}"):
            settings(text, "masked-words")


def test_a_model_from_python_is_checked_too():
    with pytest.raises(UserError, match="^unknown setting of the model 'hiden_size'"):
        get_task("classification").settings(model={"hiden_size": 3})


def test_sizes_of_every_recommender_are_checked(settings):
    with pytest.raises(UserError, match=r"^mine\.toml: model\.cube_channels is 0; give at least 1$"):
        settings("model.cube_channels = [0, 2]", "recommendation")


@pytest.mark.parametrize("task", list(declared()))
def test_presets_that_come_with_a_task_pass_and_so_do_their_settings_from_a_file(task, tmp_path):
    for preset in declared()[task].presets:
        given = {"plm_layers": 0} if task == "recommendation" else {}
        found = get_task(task).settings(preset, **given)
        file = tmp_path / f"{preset}.json"
        file.write_text(json.dumps(asdict(found)), encoding="utf-8")
        assert get_task(task).settings(str(file)) == found
