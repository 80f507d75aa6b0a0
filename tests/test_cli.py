"""The command line: what it prints, and how it answers mistakes: one line and exit code 2."""

import inspect
import io
import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import typer

from fastformer.cli import main
from fastformer.cli.app import app
from fastformer.cli.bench import bench_app
from fastformer.errors import UserError, extra
from fastformer.surroundings.progress import how_many
from fastformer.version import __version__

from .tasks.conftest import files, make_rows, run_folder, write_csv  # noqa: F401  the small task and its run


@pytest.fixture
def fastformer(monkeypatch, capsys):
    """Run a command: (exit code, standard output, standard error)."""

    def run(*arguments, stdin: str = ""):
        monkeypatch.setattr(sys, "argv", ["fastformer", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        with pytest.raises(SystemExit) as exited:
            main()
        captured = capsys.readouterr()
        return exited.value.code or 0, captured.out, captured.err

    return run


@pytest.mark.parametrize("verb", [(), ("train",), ("train", "classification"), ("evaluate",), ("predict",), ("embed",)])
def test_help_teaches(fastformer, verb):
    code, out, _ = fastformer(*verb, "--help")
    assert code == 0
    assert "Usage" in out
    if verb == ("train", "classification"):
        assert all(flag in out for flag in ("--train", "--output", "--resume", "--mixer", "--preset", "--init"))


def _commands(command, path=()):
    yield path, command
    for name, one in getattr(command, "commands", {}).items():
        yield from _commands(one, (*path, name))


@pytest.mark.parametrize(("path", "command"), list(_commands(typer.main.get_command(app))), ids=str)
def test_help_fits_into_80_columns_and_cuts_no_name(fastformer, monkeypatch, path, command):
    monkeypatch.setenv("COLUMNS", "80")
    code, out, _ = fastformer(*path, "--help")
    assert code == 0
    assert max(map(len, out.splitlines())) <= 80
    listed = [line.split() for line in out.splitlines() if line.startswith("  -")]
    named = {word.rstrip(",") for words in listed for word in words}
    for one in command.params:
        if one.param_type_name == "option" and not one.hidden:
            assert named.issuperset(name for name in (*one.opts, *one.secondary_opts) if name.startswith("--"))


def test_what_goes_to_a_file_is_utf_8_on_every_system(monkeypatch):
    out = io.TextIOWrapper(io.BytesIO(), encoding="cp1252")
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "argv", ["fastformer", "predict", "--help"])
    with pytest.raises(SystemExit):
        main()
    assert out.encoding == "utf-8"
    out.flush()
    assert "COLUMN,…" in out.buffer.getvalue().decode("utf-8")


@pytest.mark.parametrize("module", ["typer", "fastformer.cli.train", "torch"])
def test_control_c_during_imports_is_one_line(module, run_folder):  # noqa: F811
    code = f"""
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a process in the background may have been told to ignore it
class Press:
    def find_spec(self, name, *more):
        if name == {module!r}:
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Press())
sys.argv = ["fastformer", "predict", {str(run_folder)!r}]
from fastformer.cli import main
main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (130, "fastformer: stopped\n")


def test_train_then_evaluate_as_json(fastformer, files, tmp_path):  # noqa: F811
    arguments = ["--train", files["train"], "--test", files["test"], "--output", tmp_path / "run", "--epochs", 1]
    code, out, err = fastformer("train", "classification", *arguments, "--json")
    assert (code, err) == (0, "")
    trained = json.loads(out)
    code, out, err = fastformer("evaluate", tmp_path / "run", files["test"], "--no-by-class", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out) == trained["test"]
    code, out, _ = fastformer("evaluate", tmp_path / "run", files["test"])
    assert "macro-F" in out


def test_evaluate_shows_each_class_and_writes_a_report(fastformer, run_folder, files, tmp_path):  # noqa: F811
    code, out, _ = fastformer("evaluate", run_folder, files["test"])
    assert code == 0
    assert all(word in out for word in ("By class", "precision", "F1", "animal", "tool"))
    code, _, said = fastformer("evaluate", run_folder, files["test"], "--report", tmp_path / "report")
    assert f"The report is {tmp_path / 'report' / 'report.md'}." in said
    code, with_report, _ = fastformer("evaluate", run_folder, files["test"], "--report", tmp_path / "report", "--json")
    code, plain, _ = fastformer("evaluate", run_folder, files["test"], "--json")
    with_report, plain = json.loads(with_report), json.loads(plain)
    assert list(with_report["classes"]) == ["animal", "food", "tool"]
    assert with_report == plain


def test_many_classes_are_not_listed(fastformer, run_folder, files, monkeypatch):  # noqa: F811
    monkeypatch.setattr("fastformer.tasks.classification.task.FEW_CLASSES", 2)
    _, out, _ = fastformer("evaluate", run_folder, files["test"])
    assert "By class" not in out


def test_predict_reads_standard_input(fastformer, run_folder):  # noqa: F811
    code, out, _ = fastformer("predict", run_folder, "-", stdin="a cat and a horse\nsome old hammer\n")
    assert code == 0
    assert [list(json.loads(line)) for line in out.splitlines()] == [["label", "probabilities"]] * 2
    code, same, _ = fastformer(
        "predict",
        run_folder,
        "-",
        "--format",
        "jsonl",
        stdin='{"text": "a cat and a horse"}\n{"text": "some old hammer"}\n',
    )
    assert same == out


def test_predict_writes_the_top_probabilities(fastformer, run_folder):  # noqa: F811
    code, out, _ = fastformer("predict", run_folder, "-", "--top", 1, stdin="a cat and a horse\n")
    [line] = map(json.loads, out.splitlines())
    assert (code, list(line["probabilities"])) == (0, [line["label"]])
    code, out, err = fastformer("predict", run_folder, "-", "--top", 0, stdin="a cat\n")
    assert (code, out) == (2, "")
    assert err.splitlines() == ["fastformer: --top 0: no label would be left; give 1 or more"]


def test_predict_takes_a_text_and_documents(fastformer, run_folder, tmp_path):  # noqa: F811
    code, out, _ = fastformer("predict", run_folder, "--text", "a cat and a horse")
    assert (code, json.loads(out)["label"]) == (0, "animal")
    (tmp_path / "below").mkdir()
    (tmp_path / "b.txt").write_text("a cat\nand a horse\n")
    (tmp_path / "below" / "a.txt").write_text("some soup and\n\nan apple")
    (tmp_path / "empty.txt").write_text(" \n")
    code, out, err = fastformer("predict", run_folder, "--document", tmp_path)
    found = [json.loads(line) for line in out.splitlines()]
    assert [(one["file"], one["label"]) for one in found] == [("b.txt", "animal"), ("below/a.txt", "food")]
    assert "1 of 3 documents has no word, and so no answer: empty.txt." in err
    code, out, _ = fastformer("predict", run_folder, "--document", tmp_path / "b.txt")
    assert json.loads(out) == {**found[0], "file": str(tmp_path / "b.txt")}
    code, out, _ = fastformer("predict", run_folder, "--document", "-", stdin="a cat\nand a horse\n")
    assert json.loads(out) == {**found[0], "file": "-"}
    for arguments, said in (
        (("--text", " "), "no word to answer"),
        (("a cat and a horse",), "or give a text itself with --text"),
        (("--document", tmp_path / "empty.txt"), "no word to answer"),
        (("--document", tmp_path / "no.txt"), "no such file or folder"),
        (("--document", tmp_path, "--text", "a cat"), "only one of FILE, --document and --text"),
        (("-", "--text", "a cat"), "only one of FILE, --document and --text"),
        ((tmp_path / "*.csv", "--output", tmp_path / "out", "--text", "a cat"), "only one of FILE"),
        ((tmp_path / "*.csv", "--output", tmp_path / "out", "--document", tmp_path), "only one of FILE"),
        (("--document", write_csv(tmp_path / "in.csv", make_rows(5, 0))), "a table, not one text"),
        (("--document", tmp_path, "--keep", "id"), "no column 'id'"),
    ):
        code, out, err = fastformer("predict", run_folder, *arguments)
        assert (code, out) == (2, "")
        assert said in err


def test_predict_writes_a_file(fastformer, run_folder, tmp_path):  # noqa: F811
    source = write_csv(tmp_path / "in.csv", make_rows(5, 0))
    code, out, err = fastformer("predict", run_folder, source, "--output", tmp_path / "out.jsonl")
    assert (code, out) == (0, "")
    assert err == f"5 answers in {tmp_path / 'out.jsonl'}.\n"
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 5


def test_embed_says_what_it_wrote(fastformer, run_folder, files, tmp_path):  # noqa: F811
    code, out, _ = fastformer("embed", run_folder, files["test"], "--output", tmp_path / "v.npy")
    assert code == 0
    assert "60 vectors of width 128" in out
    assert np.load(tmp_path / "v.npy").shape == (60, 128)


class TestMistakes:
    def check(self, result, *parts):
        code, _, err = result
        assert code == 2
        [line] = [line for line in err.splitlines() if line.startswith("fastformer: ")]
        assert "Traceback" not in err
        for part in parts:
            assert part in line

    def train(self, fastformer, source, tmp_path, *more):
        return fastformer("train", "classification", "--train", source, "--output", tmp_path / "run", *more)

    def test_of_the_data(self, fastformer, tmp_path):
        cases = {
            "empty.csv": (b"", "is empty"),
            "broken.jsonl": (b'{"text": "a", "label": "x"}\n{"text": \n', "line 2"),
            "latin.csv": ("text,label\ncafé,x\n".encode("latin1"), "not UTF-8"),
            "columns.csv": (b"body_text,stars_given,other\na,1,2\n", "--text-column"),
            "one.csv": (b"text,label\na cat,x\na dog,x\n", "at least two"),
            "missing-label.csv": (b"text,label\na cat,\na dog,\n", "no row is left (2 without a label)"),
            "ids.csv": (b"id,text\n1,a cat\n2,a dog\n", "cannot tell which column holds the label"),
            "own.csv": (b"text,label\na,x\nb,y\nc,z\n", "all 3 rows have a label of their own"),
        }
        for name, (content, part) in cases.items():
            (tmp_path / name).write_bytes(content)
            self.check(self.train(fastformer, tmp_path / name, tmp_path), name, part)
            assert not (tmp_path / "run").exists()
        self.check(self.train(fastformer, tmp_path / "nothing.csv", tmp_path), "nothing.csv", "no such file")
        self.check(self.train(fastformer, "-", tmp_path), "standard input")

    def test_of_the_settings(self, fastformer, files, tmp_path):  # noqa: F811
        self.check(self.train(fastformer, files["train"], tmp_path, "--mixer", "x"), "unknown mixer", "longformer")
        self.check(self.train(fastformer, files["train"], tmp_path, "--preset", "x"), "unknown preset", "paper-imdb")
        self.check(self.train(fastformer, files["train"], tmp_path, "--init", "x.txt"), "x.txt: no such file")
        self.check(self.train(fastformer, files["train"], tmp_path, "--tokenizer", "./x"), "no tokenizer at ./x")
        code, _, err = self.train(fastformer, files["train"], tmp_path, "--seed", "-1")
        assert code == 2
        assert "Traceback" not in err

    def test_of_the_output(self, fastformer, run_folder, files, tmp_path):  # noqa: F811
        mine = tmp_path / "mine"
        (mine / "checkpoints").mkdir(parents=True)
        (mine / "checkpoints" / "best.pt").write_text("precious")
        arguments = ("train", "classification", "--train", tmp_path / "typo.csv", "--output", mine, "--overwrite")
        self.check(fastformer(*arguments), "not a run folder")
        assert (mine / "checkpoints" / "best.pt").read_text() == "precious"
        self.check(fastformer("predict", run_folder, files["test"], "--output", mine), "no answers of ours")
        predict = ("predict", run_folder, files["test"], "--output")
        self.check(fastformer(*predict, mine / "no" / "x.jsonl"), "cannot be written")
        self.check(fastformer(*predict, mine / "x.xlsx"), "end it in one of .jsonl")
        self.check(fastformer("embed", run_folder, files["test"], "--output", mine / "x.csv"), ".npy or .parquet")

    def test_what_is_read_is_not_written_over(self, fastformer, run_folder, tmp_path):  # noqa: F811
        source = write_csv(tmp_path / "in.csv", make_rows(5, 0))
        before = Path(source).read_text()
        (tmp_path / "link.csv").symlink_to(source)
        for output in (source, tmp_path / "link.csv"):
            self.check(
                fastformer("predict", run_folder, source, "--output", output), "would be replaced by what is made"
            )
        (tmp_path / "one.txt").write_text("a cat")
        page = ("explain", run_folder, "--file", tmp_path / "one.txt", "--output", tmp_path / "one.txt")
        self.check(fastformer(*page), "would be replaced by what is made from it")
        assert (Path(source).read_text(), (tmp_path / "one.txt").read_text()) == (before, "a cat")

    def test_whoever_debugs_sees_where_it_was_noticed(self, monkeypatch, tmp_path):
        monkeypatch.setenv("FASTFORMER_DEBUG", "1")
        monkeypatch.setattr(sys, "argv", ["fastformer", "evaluate", str(tmp_path / "nothing"), "a.csv"])
        with pytest.raises(UserError, match="no such run folder"):
            main()

    def test_of_the_run(self, fastformer, files, tmp_path):  # noqa: F811
        for verb in ("evaluate", "predict", "embed"):
            self.check(fastformer(verb, tmp_path, files["test"]), "not a run folder")
            self.check(fastformer(verb, tmp_path / "nothing", files["test"]), "no such run folder")
            self.check(fastformer(verb, files["test"], tmp_path), "is a file, not a run folder")
        (tmp_path / "run.json").write_text('{"task": "juggling"}')
        self.check(fastformer("evaluate", tmp_path, files["test"]), "unknown task 'juggling'")
        (tmp_path / "run.json").write_text('{"task": "classification"}')
        self.check(fastformer("evaluate", tmp_path, files["test"]), "run.json: its settings cannot be read")


@pytest.mark.parametrize(
    ("number", "rest", "said"),
    [
        (1, ("texts", "were"), "1 text was"),
        (2_000, ("texts", "were"), "2,000 texts were"),
        (1, ("texts", "were", 4), "1 of 4 texts was"),
        (3, ("articles", "have", 4), "3 of 4 articles have"),
        (1, ("impressions without a click",), "1 impression without a click"),
    ],
)
def test_numbers_agree_with_their_nouns_and_verbs(number, rest, said):
    assert how_many(number, *rest) == said


@pytest.mark.parametrize(
    "given",
    [
        ["serve", "run", "--grace", "1e999"],
        ["serve", "run", "--timeout", "1e300"],
        ["bench", "complexity", "--width", str(10**30)],
        ["bench", "peers", "--threads", str(2**40)],
        ["bench", "speed", "--lengths", str(10**30)],
        ["reproduce", "table-datasets", "--data-seed", str(2**40)],
    ],
)
def test_numbers_beyond_measure_are_refused(fastformer, given, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, printed, said = fastformer(*given)
    assert code == 2
    assert "Invalid value" in said or "each from 1 to" in said
    assert not printed


def test_the_version_is_printed(fastformer):
    assert fastformer("--version") == (0, f"fastformer {__version__}\n", "")


def test_a_missing_package_is_told_with_its_extra():
    told = pytest.raises(UserError, match=r"no_such_package is not installed; run: pip install 'fastformer\[plots\]'")
    with told, extra("plots"):
        import no_such_package  # noqa: F401


@pytest.mark.parametrize("command", bench_app.registered_commands, ids=lambda command: command.name)
def test_every_option_of_a_measurement_is_an_argument_of_its_function(command):
    measured = inspect.getclosurevars(command.callback).nonlocals["name"]
    function = getattr(import_module(f"fastformer.bench.{measured}"), measured)
    parameters = inspect.signature(command.callback).parameters
    needed = [name for name, one in parameters.items() if one.default is one.empty]
    options = {name: one.default for name, one in parameters.items() if name not in (*needed, "json_")}
    inspect.signature(function).bind(*needed, **options)
    inspect.signature(function).bind(*needed, **{name: one for name, one in options.items() if one is not None})
