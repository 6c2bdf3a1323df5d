"""Words of the command line that are mistaken: each gets a sentence, before any work is done."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from sklearn.exceptions import NotFittedError

from helpers.command import network_in
from patchvote import ImageClassifier, PatchvoteError, PhotoError, Recipe
from patchvote.cli.demo import run as run_demo
from patchvote.models.file import read_model, write_model
from patchvote.utils.terminal import ANYTIME
from test_outputs import FIT

USAGE = 2


@pytest.mark.parametrize(
    "words",
    [
        ("fit", "", "new.patchvote"),
        ("fit", "photos", ""),
        ("fit", "photos", "new.patchvote", "--cache", ""),
        ("fit", "photos", "new.patchvote", "--cache="),
        ("fit", "photos", "new.patchvote", "--report", ""),
        ("fit", "photos", "new.patchvote", "--target", ""),
        ("predict", "", "photos"),
        ("predict", "m.patchvote", "photos", ""),
        ("predict", "m.patchvote", "photos", "-o", ""),
        ("explain", "m.patchvote", ""),
        ("explain", "m.patchvote", "photos/iris/1.jpg", "--class", ""),
        ("evaluate", "m.patchvote", ""),
        ("add", "m.patchvote", "photos", "--output", ""),
        ("export", "m.patchvote", ""),
        ("extract", "photos", ""),
        ("info", ""),
        ("demo", ""),
    ],
)
def test_an_empty_word_is_refused(words, place, command):
    before = sorted(place.rglob("*"))
    done = command(*words)
    assert done.code == USAGE
    assert "it is empty." in done.err
    assert sorted(place.rglob("*")) == before


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("predict", "m.patchvote", "photos", "--insist"), "--insist can be used only with --adapt"),
        (("evaluate", "m.patchvote", "photos", "--insist"), "--insist can be used only with --adapt"),
        (("fit", "photos", "new.patchvote", "--insist"), "--insist can be used only with --target"),
        (("predict", "m.patchvote", "photos", "--json", "-o", "a.csv"), "--json prints and --output writes a file"),
        (("fit", "photos", "n", "--report", "r.html", "--no-report"), "--report and --no-report exclude each other"),
        (("fit", "photos", "n", "--cache", "c", "--no-cache"), "--cache and --no-cache exclude each other"),
        (("add", "m.patchvote", "photos", "--cache", "c", "--no-cache"), "--cache and --no-cache exclude each other"),
        (
            ("predict", "m.patchvote", "photos", "--cache", "c", "--no-cache"),
            "--cache and --no-cache exclude each other",
        ),
        (("evaluate", "m.patchvote", "photos", "--cache", "c", "--no-cache"), "--cache and --no-cache exclude"),
        (("suggest", "m.patchvote", "photos", "--cache", "c", "--no-cache"), "--cache and --no-cache exclude"),
        (("cache", "--yes"), "--yes can be used only with --clear"),
        (
            ("explain", "m.patchvote", "photos/iris/1.jpg", "--photos", "photos"),
            "--photos can be used only with a model of",
        ),
        (("info", "photos", "--card"), "--card prints the card of a model, and photos is a folder"),
        (("explain", "m.patchvote", "photos/iris/1.jpg", "-o", "e.gif"), "--output writes a .png file, got e.gif"),
        (("explain", "m.patchvote", "photos/iris/1.jpg", "-o", "-"), "--output writes a .png file, got -"),
        (("fit", "photos", "x.jpg", *FIT), "x.jpg has the ending of another type of file"),
        (("fit", "photos", "x.html", *FIT), "x.html has the ending of another type of file"),
        (("predict", "m.patchvote", "-", "photos"), "- reads paths from standard input, and stands alone"),
        (("predict", "photos", "m.patchvote"), "m.patchvote is a model, and photos is not: did you swap them?"),
        (("evaluate", "photos", "m.patchvote"), "did you swap them?"),
        (("explain", "photos/iris/1.jpg", "m.patchvote"), "did you swap them?"),
        (("add", "photos", "m.patchvote"), "did you swap them?"),
        (("fit", "m.patchvote", "photos"), "did you swap them?"),
        (("export", "m.onnx", "m.patchvote"), "did you swap them?"),
        (("fit", "photos", "new.patchvote", "--seed", "-1"), "--seed"),
        (("fit", "photos", "new.patchvote", "--seed", 2**32), "--seed"),
        (("fit", "photos", "new.patchvote", "--jobs", "0"), "--jobs"),
        (("fit", "photos", "new.patchvote", "--budget", "-1"), "--budget"),
        (("extract", "photos", "bags", "--sides", "a"), "--sides takes whole numbers"),
        (("extract", "photos", "bags", "--count", "5"), "count can be set only with --mode patch"),
    ],
)
def test_words_that_do_not_go_together_are_refused_before_any_work(words, says, place, command):
    before = sorted(place.rglob("*"))
    done = command(*words)
    assert done.code == USAGE
    assert says in done.err
    assert sorted(place.rglob("*")) == before


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("predict", "m.patchvote", "photos", "--top", "x"), "should be a valid integer, got 'x'."),
        (("predict", "m.patchvote", "photos", "--threshold", "9"), "less than or equal to 0.999, got '9'."),
        (("fit", "photos", "n.patchvote", "--jobs", "0"), "greater than or equal to 1, got '0'."),
        (("fit", "photos", "n.patchvote", "--mode", "sparse"), "'--mode': 'sparse' is not one of 'dense', 'patch'."),
    ],
)
def test_a_value_that_an_option_refuses_is_repeated(words, says, place, command):
    done = command(*words)
    assert done.code == USAGE
    assert says in " ".join(done.err.split())


@pytest.mark.parametrize(("model", "says"), [(".", "it is a folder"), ("/", "it is a folder"), ("..", "a folder")])
def test_a_folder_is_no_model_to_write(model, says, place, command):
    done = command("fit", "photos", model, *FIT)
    assert (done.code, says in done.err) == (1, True)


def test_a_photo_whose_name_begins_with_a_dash_gets_a_hint(place, command):
    shutil.copy("photos/iris/1.jpg", "-x.jpg")
    done = command("predict", "m.patchvote", "-x.jpg")
    assert done.code == USAGE
    assert "If -x.jpg is a file, write ./-x.jpg." in done.err
    done = command("predict", "m.patchvote", "./-x.jpg")
    assert next(csv.DictReader(io.StringIO(done.out)))["file"] == "./-x.jpg"


# --- names of photos ------------------------------------------------------------------------------------------------


def files(out: str) -> list[str]:
    return [row["file"] for row in csv.DictReader(io.StringIO(out))]


def test_photos_of_a_manifest_are_called_as_they_are_there(place, command):
    (place / "list.csv").write_text("file_name\n./photos/iris/1.jpg\nphotos\\rose\\2.jpg\n")
    assert files(command("predict", "m.patchvote", "list.csv").out) == ["./photos/iris/1.jpg", "photos\\rose\\2.jpg"]
    assert files(command("predict", "m.patchvote", place / "list.csv").out)[0] == "./photos/iris/1.jpg"


@pytest.mark.parametrize("adapt", [(), ("--adapt",)])
def test_photos_of_one_name_in_two_manifests_are_called_by_their_paths(adapt, place, command):
    for folder in ("iris", "rose"):
        (place / "photos" / folder / "list.csv").write_text("file_name\n1.jpg\n2.jpg\n")
    done = command("predict", "m.patchvote", "photos/iris/list.csv", "photos/rose/list.csv", *adapt)
    assert files(done.out) == ["photos/iris/1.jpg", "photos/iris/2.jpg", "photos/rose/1.jpg", "photos/rose/2.jpg"]


def test_photos_are_called_as_they_were_typed(place, command, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("./photos/iris/1.jpg\n./photos/rose\n"))
    names = files(command("predict", "m.patchvote", "-").out)
    assert names == ["./photos/iris/1.jpg", *(f"./photos/rose/{i}.jpg" for i in range(6))]


# --- answers --------------------------------------------------------------------------------------------------------


def test_predict_of_photos_that_cannot_be_read_at_all_fails(place, command):
    done = command("predict", "m.patchvote", "nope.jpg", "neither.jpg")
    assert done.code == 1
    assert [row["probability"] for row in csv.DictReader(io.StringIO(done.out))] == ["", ""]
    done = command("predict", "m.patchvote", "nope.jpg", "photos/iris/1.jpg", "--json")
    assert done.code == 3
    assert [json.loads(line)["probability"] is None for line in done.out.splitlines()] == [True, False]


def test_predict_says_whether_it_adapted(place, command):
    done = command("predict", "m.patchvote", "photos", "--adapt", "--insist", "--json")
    assert "adapted to 12 photos." in done.err
    assert all(json.loads(line)["adapted"] for line in done.out.splitlines())
    done = command("predict", "m.patchvote", "photos/iris/1.jpg", "--adapt", "--json")
    assert "of 1 photo, too few" in done.err
    assert "so the model answers as it was learned" in done.err
    assert json.loads(done.out)["adapted"] is False
    assert "adapted" not in json.loads(command("predict", "m.patchvote", "photos/iris/1.jpg", "--json").out)


def test_predict_says_how_many_photos_it_rejects_only_because_it_adapted(place, command, monkeypatch):
    def adapted(self, items, insist, threshold):
        self._model = dataclasses.replace(self.model, threshold=1.0, familiarity=None)  # it rejects all of them

    monkeypatch.setattr(ImageClassifier, "_adapt_to", adapted)
    rows = csv.DictReader(io.StringIO(command("predict", "m.patchvote", "photos").out))
    named = sum(row["label"] != "none of these" for row in rows)
    assert named > 0
    done = command("predict", "m.patchvote", "photos", "--adapt")
    assert '12 of 12 photos are "none of these".' in done.err
    assert f"Without --adapt, {named} of these would have been named. --threshold 0 names every photo" in done.err
    assert command("predict", "m.patchvote", "photos", "--adapt", "-q").err == ""


def test_a_photo_that_is_there_often_counts_once_when_adapting(place, command):
    (place / "many").mkdir()
    for index in range(12):
        shutil.copy("photos/iris/1.jpg", f"many/{index}.jpg")
    done = command("predict", "m.patchvote", "many", "--adapt")
    assert "of 1 photo, too few" in done.err


@pytest.fixture
def strict(place):
    """A model that rejects every photo."""
    model = dataclasses.replace(read_model("m.patchvote"), threshold=1.0, familiarity=None)
    write_model(model, "strict.patchvote")
    return "strict.patchvote"


def test_explain_says_that_a_photo_is_rejected(strict, command):
    done = command("explain", strict, "photos/iris/1.jpg")
    assert '"none of these" is the better answer: no class reaches 100 %.' in done.out
    rejected = json.loads(command("explain", strict, "photos/iris/1.jpg", "--json").out)
    assert [rejected[name] for name in ("rejected", "label", "probability")] == [True, "none of these", None]
    assert rejected["likeliest_probability"] == round(max(rejected["probabilities"].values()), 4)
    assert not json.loads(command("explain", "n.patchvote", "photos/iris/1.jpg", "--json").out)["rejected"]


def test_evaluate_tells_the_share_of_those_that_are_not_rejected(strict, command):
    done = command("evaluate", strict, "photos", "--no-report")
    assert (
        '12 would be rejected as "none of these", which the figures above ignore; the likeliest class is right for '
        "all of these photos. Of the other 0, none are" in done.out
    )
    assert json.loads(command("evaluate", strict, "photos", "--no-report", "--json").out)["accuracy_of_named"] is None
    told = json.loads(command("evaluate", "n.patchvote", "photos", "--no-report", "--json").out)
    assert told["accuracy_of_named"] >= told["accuracy"] > 0


# --- what fit says --------------------------------------------------------------------------------------------------


def test_fit_tells_how_many_photos_each_class_has(place, command):
    assert "12 photos of 2 classes: iris 6, rose 6\n" in command("fit", "photos", "new.patchvote", *FIT).out


def test_fit_hints_at_the_folder_that_was_meant(place, command):
    shutil.copytree("photos", "all/train")
    shutil.copytree("photos", "all/test")
    (place / "all" / "train" / "iris" / "0.jpg").unlink()
    done = command("fit", "all", "new.patchvote", *FIT)
    assert "all/train holds folders, not photos: did you mean all/train in place of all?" in done.err
    shutil.rmtree("all/test")
    done = command("fit", "all", "new2.patchvote", *FIT)
    assert "all photos are of one class, 'train'." in done.err
    assert "Did you mean all/train, which holds folders?" in done.err
    assert done.err.count("all/train") == 1  # one hint is enough
    assert "holds folders" not in command("fit", "photos", "new3.patchvote", *FIT).err


def test_classes_whose_names_differ_by_case_alone_are_named(place, command):
    shutil.copytree("photos/iris", "photos/Iris")
    done = command("fit", "photos", "new.patchvote", *FIT)
    assert done.code == 0
    assert "these classes differ in name only by case or spaces: 'Iris' and 'iris'." in done.err


def test_a_class_folder_that_cannot_be_read_is_named(place, command):
    shutil.rmtree("photos/rose")
    os.mkdir("photos/rose")  # noqa: PTH102
    (place / "photos" / "rose" / "1.jpg").write_text("no photo")
    done = command("fit", "photos", "new.patchvote", *FIT)
    assert done.code == 1
    assert "photos of one class only can be read: 'iris'." in done.err
    assert "rose/1.jpg" in done.err


def test_all_unknown_classes_are_named(place, command):
    for label in ("tulip", "lily"):
        shutil.copytree("photos/iris", f"photos/{label}")
    done = command("evaluate", "m.patchvote", "photos")
    assert "does not know the classes 'lily', 'tulip'." in done.err
    assert "`patchvote add` teaches it new classes; `patchvote evaluate --unknown DIR` measures" in done.err


def test_reports_are_called_after_the_folder_as_it_is(place, command, monkeypatch):
    shutil.copytree("photos", "v.1")
    assert command("evaluate", "m.patchvote", "v.1").code == 0
    assert (place / "m-v.1.html").exists()
    monkeypatch.chdir("photos")
    assert command("evaluate", "../m.patchvote", ".").code == 0
    assert (place / "m-photos.html").exists()


# --- stores and folders ---------------------------------------------------------------------------------------------


def test_info_of_a_damaged_store_says_so_and_ends_with_3(place, command):
    for photos in ("photos/iris", "photos/rose"):
        assert command("extract", photos, "bags", "--network", "tiny.onnx").code == 0
    assert command("info", "bags").code == 0
    shard = sorted((place / "bags").glob("*.safetensors"))[0]
    shard.write_bytes(shard.read_bytes()[:100])
    done = command("info", "bags")
    assert done.code == 3
    (line,) = [line for line in done.out.splitlines() if line.startswith("damaged")]
    assert line.endswith(". The next run extracts its photos again.")
    assert command("info", "bags", "--json").code == 3


def test_a_cache_that_cannot_be_written_is_done_without(place, command):
    (place / "file").touch()
    done = command("fit", "photos", "new.patchvote", "--network", "tiny.onnx", "--cache", "file/cache")
    assert done.code == 0
    assert "cannot be written (Not a directory): the work is done without it" in done.err
    assert (place / "new.patchvote").exists()


def test_the_demo_refuses_a_folder_that_holds_something_else(tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(PatchvoteError, match=r"writes into a folder, and .*thesis.txt is a file"):
        run_demo(tmp_path / "thesis.txt")
    with pytest.raises(PatchvoteError, match=r"holds 'thesis.txt', which the demonstration did not write"):
        run_demo(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


# --- streams --------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no full device")  # noqa: PTH110
def test_fit_and_add_say_that_the_model_was_written_when_the_result_cannot_be_printed(place):
    (place / "more" / "tulip").mkdir(parents=True)
    shutil.copy("photos/iris/1.jpg", "more/tulip/1.jpg")
    for words in (("fit", "photos", "new.patchvote", *FIT), ("add", "m.patchvote", "photos", "--no-cache")):
        with open("/dev/full", "w") as full:  # noqa: PTH123
            run = [sys.executable, "-m", "patchvote", *words]
            done = subprocess.run(run, stdout=full, stderr=subprocess.PIPE, text=True)
        assert done.returncode == 1
        assert "standard output cannot be written" in done.stderr
        assert ".patchvote was written nevertheless." in done.stderr


def test_help_that_nobody_reads_is_no_failure():
    run = f"{sys.executable} -m patchvote fit --help | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", run], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_network_can_be_named_alone_in_python(tmp_path):
    network = str(network_in(tmp_path))
    assert ImageClassifier(network).recipe == Recipe(network)


@pytest.mark.parametrize(
    ("module", "words", "kept"),
    [
        ("patchvote.cli", ["info", "m.patchvote"], "interrupted; nothing was done.\n"),
        ("patchvote.models.file", ["info", "m.patchvote"], f"{ANYTIME}\n"),
        ("patchvote.models.file", ["add", "m.patchvote", "photos", "--no-cache"], "m.patchvote is as it was.\n"),
    ],
)
def test_ctrl_c_during_an_import_that_turns_it_into_another_error_says_what_is_kept(module, words, kept, place):
    code = f"""
import os, signal, sys, time
class Finder:
    def find_spec(self, name, path, target=None):
        if name == {module!r}:
            try:
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(5)
            except KeyboardInterrupt:
                raise ImportError("the library cannot be loaded")
sys.meta_path.insert(0, Finder())
sys.argv = ["patchvote", *{words!r}]
from patchvote.__main__ import main
main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 130
    assert done.stderr.endswith(kept), done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "usage"),
    [
        (("predict",), "[OPTIONS] MODEL PHOTOS..."),
        (("suggest",), "[OPTIONS] MODEL UNLABELLED..."),
        (("explain",), "[OPTIONS] MODEL PHOTOS..."),
        (("serve",), "[OPTIONS] [MODEL]..."),
        (("check",), "[OPTIONS] PHOTOS"),
    ],
)
def test_help_shows_names_and_no_types_of_python(words, usage, command):
    shown = command(*words, "--help").out
    assert shown.splitlines()[0].endswith(usage)
    assert not any(part in shown for part in ("list[", "<Path>", "{"))


def test_python_names_the_path_of_a_photo_that_cannot_be_read_and_how_to_go_on(place):
    (place / "photos/iris/bad.jpg").write_bytes(b"no photo")
    classifier = ImageClassifier.load("m.patchvote", cache=False)
    for ask in (classifier.predict, classifier.predict_proba, classifier.predict_or_none):
        with pytest.raises(PhotoError, match=r"^photos/iris/bad.jpg: .* `answers` continues after such photos\.$"):
            ask("photos")
    assert [answer.name for answer in classifier.answers("photos") if answer.error] == ["iris/bad.jpg"]


def test_asking_before_learning_is_an_error_of_scikit_learn_as_well(place):
    with pytest.raises(NotFittedError, match="learned nothing yet") as caught:
        ImageClassifier(Recipe("tiny.onnx")).predict("photos")
    assert isinstance(caught.value, PatchvoteError)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (type(again), str(again)) == (type(caught.value), str(caught.value))


def test_add_refuses_folders_of_folders_of_classes(place, command):
    assert command("fit", "photos", "grown.patchvote", *FIT).code == 0
    before = Path("grown.patchvote").read_bytes()
    shutil.copytree("photos", "upper/more")
    done = command("add", "grown.patchvote", "upper", "--no-cache")
    assert done.code == 1
    assert "upper/more holds folders, not photos, and would become a class." in done.err
    assert "Did you mean this: patchvote add grown.patchvote upper/more?" in done.err
    assert Path("grown.patchvote").read_bytes() == before
    (place / "upper").rename(place / "known")
    (place / "known" / "more").rename(place / "known" / "iris")  # a class of the model, with folders of its own
    assert "would become a class" not in command("add", "grown.patchvote", "known", "--no-cache").err


def test_a_file_name_that_is_a_number_is_told_as_one(place, command):
    Path("list.jsonl").write_text('{"file_name": "photos/iris/0.jpg", "label": "x"}\n{"file_name": 3, "label": "x"}\n')
    assert "line 2 has no file_name in text, but 3." in command("check", "list.jsonl").err


def test_a_path_that_cannot_be_looked_at_costs_no_other_photo_its_answer(place, command):
    done = command("predict", "m.patchvote", "photos/iris/0.jpg", "a" * 300 + ".jpg", *FIT)
    assert done.code == 3
    assert "photos/iris/0.jpg" in done.out
