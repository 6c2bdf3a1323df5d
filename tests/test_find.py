"""Photos are found in folders, manifests, tables and lists; labels come from folders, columns or the caller."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from patchvote import PatchvoteError, Photo, PhotoError, find_photos
from patchvote.photos.find import PassedOver, label_texts, labelled, near_path
from patchvote.photos.manifests import Columns


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "photos"


def put(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (4, 4)).save(path, format="PNG")
    return path


def listed(source) -> dict[str, str | None]:
    return {photo.name: photo.label for photo in find_photos(source)}


# --- folders --------------------------------------------------------------------------------------------------------


def test_the_label_is_the_first_folder_on_the_way_and_names_are_kept(folder):
    for name in ("cat/a.jpg", "cat/2019/summer/b.JPG", "猫/[三毛] #1 & 100%.gif", "top.webp"):
        put(folder / name)
    for name in (".hidden.jpg", ".cache/b.jpg", "__MACOSX/c.jpg", "cat/._d.jpg"):
        put(folder / name)
    (folder / "cat" / "labels.csv").write_text("no photo")
    assert listed(folder) == {
        "cat/2019/summer/b.JPG": "cat",
        "cat/a.jpg": "cat",
        "top.webp": None,
        "猫/[三毛] #1 & 100%.gif": "猫",
    }


def test_links_are_followed_but_not_in_a_circle(folder, tmp_path):
    target = put(tmp_path / "elsewhere" / "a.jpg")
    put(folder / "dog" / "b.jpg")
    (folder / "cat").symlink_to(target.parent)
    (folder / "gone.jpg").symlink_to(tmp_path / "nowhere.jpg")
    (folder / "best").symlink_to("dog")
    (target.parent / "back").symlink_to(folder)
    found = find_photos(folder)
    assert [photo.name for photo in found] == ["cat/a.jpg", "dog/b.jpg", "gone.jpg"]
    assert found.passed_over.links == ("best", "cat/back")
    assert "passed over links" in found.passed_over.sentences()[0]


def test_links_upon_links_are_walked(folder):
    for level in range(28):  # each leads to the next in two ways: 2 ** 28 paths
        (folder / f"{level}").mkdir(parents=True)
        for name in ("x", "y"):
            (folder / f"{level}" / name).symlink_to(f"../{level + 1}")
    put(folder / "28" / "a.jpg")
    assert [photo.label for photo in find_photos(folder)] == ["28"]


def test_names_that_are_not_unicode_are_found(folder):
    folder.mkdir()
    try:
        put(folder / os.fsdecode(b"caf\xe9.jpg"))
    except OSError:
        pytest.skip("this file system takes only Unicode names")
    assert list(listed(folder)) == [os.fsdecode(b"caf\xe9.jpg")]


def test_unreadable_types_and_empty_class_folders_are_told(folder):
    put(folder / "cat" / "1.jpg")
    (folder / "dog").mkdir()
    for name in ("cat/2.NEF", "dog/3.cr2"):
        (folder / name).write_bytes(b"x")
    over = find_photos(folder).passed_over
    assert over == PassedOver({".nef": 1, ".cr2": 1}, "cat/2.NEF", ("dog",))
    first, second = over.sentences()
    assert "darktable" in first
    assert "dog" in second
    assert (over + PassedOver({".nef": 2}, "x.nef", ("owl",))).types == {".nef": 3, ".cr2": 1}


def test_what_cannot_be_photos_is_refused_with_a_hint(folder, tmp_path):
    folder.mkdir()
    with pytest.raises(PhotoError, match="no photos here"):
        find_photos(folder)
    (folder / "1.NEF").write_bytes(b"x")
    with pytest.raises(PhotoError, match=r"1 with \.nef.*darktable"):
        find_photos(folder)
    for name in ("1.NEF", "x.txt"):
        (folder / name).write_bytes(b"x")
        with pytest.raises(PhotoError, match="neither a folder, a manifest"):
            find_photos(folder / name)
    with pytest.raises(PhotoError, match="Did you mean .*photos"):
        find_photos(tmp_path / "fotos")
    with pytest.raises(PhotoError, match="File name too long"):
        find_photos("x" * 5000)
    assert near_path(tmp_path / "absent" / "x") == ""


# --- manifests ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_manifests_are_read_as_spreadsheets_write_them(encoding, newline, tmp_path):
    for delimiter in ",;":
        rows = [delimiter.join(row) for row in (("file_name", "label"), ("café.jpg", "Straße"), ("sub\\桜.jpg", ""))]
        (tmp_path / "x.csv").write_bytes("".join(f"{row}{newline}" for row in rows).encode(encoding))
        assert listed(tmp_path / "x.csv") == {"café.jpg": "Straße", "sub\\桜.jpg": None}
        assert find_photos(tmp_path / "x.csv")[1].source == tmp_path / "sub/桜.jpg"
    rows = ['{"file_name": "a.jpg", "label": "line\u2028break"}', "", '{"file_name": "../b.jpg", "label": 7}']
    (tmp_path / "x.jsonl").write_bytes("".join(f"{row}{newline}" for row in rows).encode(encoding))
    assert listed(tmp_path / "x.jsonl") == {"a.jpg": "line\u2028break", "../b.jpg": "7"}


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("x.csv", "path,label\na.jpg,cat\n", "must name a column file_name, got: 'path,label'"),
        ("x.csv", "file_name,label\n", "lists no photos"),
        ("x.csv", "file_name,label\na.jpg,cat\n ,dog\n", "line 3 has no file_name"),
        ("x.csv", "file_name,label\na.jpg,cat\na.jpg,dog\n", "line 3 labels a.jpg 'dog', an earlier line 'cat'"),
        ("x.csv", 'file_name,label\na.jpg,"cat\nb.jpg,dog\n', "is not CSV"),
        ("x.csv", b"file_name\ncaf\xe9.jpg\n", "not UTF-8 text"),
        ("x.jsonl", '{"file_name": "a.jpg"}\n{"file_name": ', "line 2 is not JSON"),
        ("x.jsonl", '["a.jpg"]', "line 1 must be an object"),
        ("x.jsonl", '{"file_name": "a.jpg", "label": NaN}', "line 1: label must be text"),
        ("x.jsonl", '{"file_name": "a.jpg"}\n' + '{"a":' * 100_000 + "1" + "}" * 100_000, "line 2 is nested too deep"),
        ("x.jsonl", '{"file_name": "a.jpg", "label": ' + "9" * 100_000 + "}", "line 1 is not JSON"),
        ("x.jsonl", "x" * 3_000_000, "line 1 has more than 1,048,576 characters"),
        ("x.csv", 'file_name\n"' + "a\n" * 200_000, "is not CSV: field larger than field limit"),
    ],
)
def test_a_broken_or_monstrous_manifest_is_refused_in_few_words(tmp_path, name, text, says):
    (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(PhotoError, match=says) as caught:
        find_photos(tmp_path / name)
    assert len(str(caught.value)) < 1_000


@pytest.fixture
def lists(place):
    """Lists of the photos with other columns: two with commas or semicolons, one of JSON."""
    photos = sorted(path.relative_to(place).as_posix() for path in place.glob("photos/*/*.jpg"))
    rows = [(path, path.split("/")[1], "2024") for path in photos]
    (place / "list.csv").write_text("path,species,year\n" + "".join(",".join(row) + "\n" for row in rows))
    (place / "german.csv").write_text("year;species;path\n" + "".join(";".join(row[::-1]) + "\n" for row in rows))
    lines = [json.dumps({"path": path, "species": label}) for path, label, _ in rows]
    (place / "list.jsonl").write_text("\n".join(lines) + "\n")
    return place


@pytest.mark.parametrize("name", ["list.csv", "german.csv", "list.jsonl"])
def test_columns_are_found_by_the_names_that_were_given(name, lists):
    found = find_photos(name, {"file": "path", "label": "species"})
    assert [(photo.name, photo.label) for photo in found[5:7]] == [
        ("photos/iris/5.jpg", "iris"),
        ("photos/rose/0.jpg", "rose"),
    ]
    assert find_photos(name, {"file": "path"})[0].label is None
    if name.endswith("csv"):
        frame = pytest.importorskip("pandas").read_csv(name, sep=None, engine="python")
        assert find_photos(frame, {"file": "path", "label": "species"})[7].label == "rose"
        with pytest.raises(PhotoError, match="no column kind"):
            find_photos(frame, {"file": "path", "label": "kind"})


def test_columns_need_a_list_and_known_keys(lists):
    for text in ("path", "file=", "name=path", "file=a;label=b,"):
        with pytest.raises(PatchvoteError, match="file=COLUMN,label=COLUMN"):
            Columns.parse(text)
    for source, columns in (("photos", {"file": "x"}), ("list.csv", {"path": "file"}), ("list.csv", {"file": ""})):
        with pytest.raises(PatchvoteError, match="column"):
            find_photos(source, columns)


# --- lists and labels -----------------------------------------------------------------------------------------------


def test_paths_arrays_images_and_contents_can_be_mixed_in_a_list(tmp_path):
    path = put(tmp_path / "a.jpg")
    with path.open("rb") as file:
        items = [path, str(path), np.zeros((2, 2)), Image.new("L", (2, 2)), Photo("mine", path, "cat"), file]
        photos = find_photos([*items, path.read_bytes()])
    assert [photo.name for photo in photos[2:]] == ["image 2", "image 3", "mine", "image 5", "image 6"]
    assert photos[0].source == photos[1].source == path
    assert photos[5].source == photos[6].source
    assert listed(path) == {"a.jpg": None}
    assert [len(find_photos(np.zeros(shape))) for shape in ((2, 2, 3), (5, 2, 2, 3))] == [1, 5]


def test_what_is_no_photo_or_has_no_class_or_two_is_refused(tmp_path):
    with (tmp_path / "x.txt").open("w+") as text:
        for source, says in (
            ([], "is empty"),
            ([3], "got int"),
            (3, "photos must be"),
            ([text], "as text"),
        ):
            with pytest.raises(PhotoError, match=says):
                find_photos(source)
    paths = [put(tmp_path / "photos" / "train" / "cat" / name) for name in ("1.png", "2.png")]
    assert len(labelled([*paths, paths[0]], ["cat", "dog", "cat"], 2)) == 3
    for source, labels, says in (
        ([*paths, paths[0]], ["cat", "dog", "dog"], "1.png has two classes, 'cat' and 'dog'"),
        (paths, None, "2 photos have no class, the first is .*1.png"),
        ([Photo("a", paths[0], "cat"), Photo("b", paths[0], "")], None, "1 photo has no class, the first is b"),
        (paths[0], None, "Put the photos"),
        (tmp_path / "photos", None, "Did you mean .*/photos/train"),
    ):
        with pytest.raises(PatchvoteError, match=says):
            labelled(source, labels, 2)


def test_labels_become_text_and_mixed_types_are_refused():
    assert label_texts(["a", "b"], iter([np.str_("cat"), "dog"])) == ["cat", "dog"]
    assert label_texts(["a", "b"], [True, False]) == ["True", "False"]
    for labels, says in (([0, "0"], "all be text"), ([(1, 2), 1], "all be text"), ([1], "1 label")):
        with pytest.raises(PatchvoteError, match=says):
            label_texts(["a", "b"], labels)
    for missing in (None, np.nan, "", "  "):
        with pytest.raises(PatchvoteError, match="b has no label"):
            label_texts(["a", "b"], ["cat", missing])
    with pytest.raises(PatchvoteError, match="labels must be a list"):
        label_texts(["a", "b", "c"], "cat")
