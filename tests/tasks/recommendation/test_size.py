"""A million users and 2.2 million impressions, as MIND-large has, fit into the memory of a laptop."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

NEWS, USERS, IMPRESSIONS, BLOCK = 160_000, 1_000_000, 2_200_000, 20_000
READ = """
import sys
from fastformer.data.tokenizer_training import train_tokenizer
from fastformer.surroundings.machine import peak_memory_gb
from fastformer.tasks.recommendation.examples import ClickExamples, encode_titles, news_texts
from fastformer.tasks.recommendation.mind import read_mind

clicks = read_mind(sys.argv[1])
tokenizer = train_tokenizer("word", news_texts(clicks.news, ("title",)), vocab_size=30_000, min_frequency=1)
titles = encode_titles(clicks.news, tokenizer, ("title",), 48)
examples = ClickExamples(clicks, titles, negatives=4, max_history=50, seed=0)
batch = examples.__getitems__(range(0, len(examples), len(examples) // 64))
print(len(clicks), len(clicks.candidates.values), len(examples), len(batch["history"]), peak_memory_gb())
"""


def write(folder: Path) -> int:
    """News of 11 words, histories of 32 clicks on average and impressions of 37; how many candidates there are."""
    folder.mkdir()
    random = np.random.default_rng(0)
    words = random.zipf(1.3, (NEWS, 11)) % 40_000
    with (folder / "news.tsv").open("w") as file:
        for number, title in enumerate(words):
            file.write(f"N{number}\tnews\tall\t{' '.join(map(str, title))}\t\t\t[]\t[]\n")
    names, clicked, passed = (np.array([f"N{n}{end}" for n in range(NEWS)], object) for end in ("", "-1", "-0"))

    def draw(lengths: np.ndarray) -> list[np.ndarray]:
        popular = (NEWS * random.random(lengths.sum()) ** 4).astype(int)
        return np.split(popular, np.cumsum(lengths)[:-1])

    histories = [" ".join(names[row]) for row in draw(np.minimum(random.geometric(1 / 32, USERS), 300))]
    candidates = 0
    with (folder / "behaviors.tsv").open("w") as file:
        for start in range(0, IMPRESSIONS, BLOCK):
            lengths = np.clip(random.geometric(1 / 37, BLOCK), 2, 250)
            candidates += lengths.sum()
            users = random.integers(0, USERS, BLOCK)
            for number, (user, shown) in enumerate(zip(users, draw(lengths), strict=True), start):
                time = f"11/{9 + number % 6}/2019 {1 + number % 12}:05:58 AM"
                row = f"{clicked[shown[0]]} {' '.join(passed[shown[1:]])}"
                file.write(f"{number}\tU{user}\t{time}\t{histories[user]}\t{row}\n")
    return candidates


@pytest.mark.slow
def test_as_large_as_mind(tmp_path):
    candidates = write(tmp_path / "train")
    command = [sys.executable, "-c", READ, str(tmp_path / "train")]
    for _ in range(2):  # read; and again, from the cache
        printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
        assert [int(number) for number in printed[:3]] == [IMPRESSIONS, candidates, IMPRESSIONS]
        assert int(printed[3]) >= 64
        assert float(printed[4]) < 4
