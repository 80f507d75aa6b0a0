"""What sentence-transformers needs beside a run's own files to load it: `SentenceTransformer(path)`.

It builds the encoder from parts that it has itself: a transformers model (which `import fastformer` makes known), the
mean of its token vectors, and length 1.
"""

from pathlib import Path

from fastformer.surroundings.files import write_json, writing_aside

MODULES_FILE = "modules.json"
_KIND = "sentence_transformers.models."
_POOLING = "1_Pooling"


def write_modules(path: Path, width: int) -> None:
    """Write modules.json and the configuration of the pooling into the folder of a run."""
    pooling = path.parent / _POOLING
    pooling.mkdir(exist_ok=True)
    contents = {
        pooling / "config.json": {"word_embedding_dimension": width, "pooling_mode_mean_tokens": True},
        path: [
            {"idx": number, "name": str(number), "path": place, "type": f"{_KIND}{kind}"}
            for number, (kind, place) in enumerate((("Transformer", ""), ("Pooling", _POOLING), ("Normalize", "")))
        ],
    }
    for place, content in contents.items():
        with writing_aside(place) as aside:
            write_json(aside, content)
