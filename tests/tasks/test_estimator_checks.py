"""scikit-learn's own checks of estimators, as far as they make sense for texts.

The checks give every estimator a matrix of numbers, and by its tags they would leave one for texts out. So the tags say
here that matrices are fine, and each row of one is written down as a text. Everything else is the estimator as it is.
"""

import numpy as np
import pytest
from sklearn.utils import InputTags
from sklearn.utils.estimator_checks import parametrize_with_checks

from fastformer import TextClassifier, TextRegressor
from fastformer.tasks.classification import estimator

pytestmark = pytest.mark.slow  # a minute and a half of many small trainings

_NO_COLUMNS = "texts have no columns that could be counted, named or compared"
_NO_ARRAY = "texts are no array of numbers whose type, shape or values could be refused"
# Of both estimators, then of each: what does not hold, and why. docs/guide/classify.md says the same.
CANNOT = {
    "check_n_features_in": _NO_COLUMNS,
    "check_n_features_in_after_fitting": _NO_COLUMNS,
    "check_estimators_empty_data_messages": _NO_COLUMNS,
    "check_transformer_general": _NO_COLUMNS,
    "check_complex_data": _NO_ARRAY,
    "check_estimators_nan_inf": _NO_ARRAY,
    "check_fit1d": _NO_ARRAY,
    "check_fit2d_predict1d": _NO_ARRAY,
    "check_estimator_sparse_tag": _NO_ARRAY,
    "check_estimator_sparse_array": _NO_ARRAY,
    "check_estimator_sparse_matrix": _NO_ARRAY,
    "check_sample_weight_equivalence_on_dense_data": "a text twice is not a weight of 2: batches are drawn at random",
}
CLASSIFIER_CANNOT = {
    "check_classifiers_train": _NO_COLUMNS,
    "check_class_weight_classifiers": "classes are weighted as `balanced` or not at all, by no dictionary",
    "check_classifiers_multilabel_representation_invariance": "a list of lists holds labels, not rows of a matrix",
}
REGRESSOR_CANNOT = {
    "check_fit2d_1sample": "a single text is refused, in words of our own: one row leaves nothing to validate on",
}


class _Matrices:
    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags = InputTags()  # a matrix of numbers
        return tags


class MatrixClassifier(_Matrices, TextClassifier):
    pass


class MatrixRegressor(_Matrices, TextRegressor):
    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True  # after one epoch
        return tags


def _as_texts(given) -> list[str]:
    """Each number as a word of its column, rounded: `c0m1p5 c1p0p3` for -1.5 and 0.3."""
    return [" ".join(map(_word, range(len(row)), row)) for row in np.asarray(given)]


def _word(column: int, number) -> str:
    return f"c{column}{'m' if float(number) < 0 else 'p'}{abs(float(number)):.1f}".replace(".", "p")


@pytest.fixture(autouse=True)
def rows_are_texts(monkeypatch):
    checked = estimator._checked_texts
    monkeypatch.setattr(estimator, "_checked_texts", lambda given: checked(_as_texts(given)))


@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks(
    [MatrixClassifier(epochs=1), MatrixRegressor(epochs=1)],
    expected_failed_checks=lambda one: {
        **CANNOT,
        **(CLASSIFIER_CANNOT if isinstance(one, TextClassifier) else REGRESSOR_CANNOT),
    },
    xfail_strict=True,
)
def test_scikit_learns_own(estimator, check):
    check(estimator)


def test_tags_say_what_they_take():
    for one in (TextClassifier(), TextRegressor()):
        tags = one.__sklearn_tags__()
        assert (tags.input_tags.string, tags.input_tags.one_d_array, tags.input_tags.two_d_array) == (True, True, False)
        assert tags.target_tags.required
    assert TextClassifier().__sklearn_tags__().classifier_tags.multi_label
