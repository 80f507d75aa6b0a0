"""Which study makes which table: by its name, or by its task."""

from fastformer.paper.classification import Classification
from fastformer.paper.conversion import Conversion
from fastformer.paper.counting import Complexity, Statistics
from fastformer.paper.recommendation import Recommendation
from fastformer.paper.study import Study
from fastformer.paper.summarization import Summarization

STUDIES: dict[str, type[Study]] = {
    "table-complexity": Complexity,
    "table-datasets": Statistics,
    "classification": Classification,
    "recommendation": Recommendation,
    "summarization": Summarization,
    "conversion": Conversion,
}
