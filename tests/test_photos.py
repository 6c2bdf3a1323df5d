from __future__ import annotations

import os
import shutil
import subprocess
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from patchvote import PatchvoteError, Photo, PhotoError, find_photos
from patchvote.photos import hints
from patchvote.photos.find import labelled
from patchvote.photos.hints import folder_above, near_path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "photos"


def put(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (4, 4)).save(path, format="PNG")
    return path


def listed(source) -> dict[str, str | None]:
    return {photo.name: photo.label for photo in find_photos(source)}


def test_a_folder_a_class_gives_labels_and_photos_beside_the_folders_have_none(folder):
    for name in ("cat/a.jpg", "cat/b.JPG", "dog/c.png", "top.webp"):
        put(folder / name)
    assert listed(folder) == {"cat/a.jpg": "cat", "cat/b.JPG": "cat", "dog/c.png": "dog", "top.webp": None}


def test_the_label_is_the_first_folder_on_the_way(folder):
    put(folder / "cat" / "2019" / "summer" / "a.jpg")
    assert listed(folder) == {"cat/2019/summer/a.jpg": "cat"}


def test_names_with_spaces_accents_and_other_scripts_are_kept(folder):
    names = ["Straße/Café au lait.jpg", "猫/三毛 1.png", "été/[a] #1 & 100%.gif"]
    for name in names:
        put(folder / name)
    assert sorted(listed(folder)) == sorted(names)


def test_hidden_files_and_other_kinds_of_files_are_passed_over(folder):
    for name in ("a.jpg", ".hidden.jpg", ".cache/b.jpg", "__MACOSX/c.jpg", "cat/._d.jpg"):
        put(folder / name)
    for name in ("Thumbs.db", "notes.txt", "cat/labels.csv"):
        (folder / name).write_text("no photo")
    assert list(listed(folder)) == ["a.jpg"]


def test_links_are_followed_but_not_in_a_circle(folder, tmp_path):
    target = put(tmp_path / "elsewhere" / "a.jpg")
    folder.mkdir()
    (folder / "cat").symlink_to(target.parent)
    (folder / "b.jpg").symlink_to(target)
    (folder / "gone.jpg").symlink_to(tmp_path / "nowhere.jpg")
    (target.parent / "back").symlink_to(folder)
    assert list(listed(folder)) == ["b.jpg", "cat/a.jpg", "gone.jpg"]
    assert find_photos(folder).passed_over.sentences() == [
        "passed over the link cat/back: it leads to a folder that was searched already."
    ]


def test_a_folder_has_its_photos_under_its_own_name_whatever_links_lead_to_it(folder):
    put(folder / "cat" / "a.jpg")
    put(folder / "dog" / "b.jpg")
    for name in ("best", "zoo"):
        (folder / name).symlink_to("cat")
    found = find_photos(folder)
    assert [photo.name for photo in found] == ["cat/a.jpg", "dog/b.jpg"]
    assert found.passed_over.links == ("best", "zoo")
    assert found.passed_over.sentences() == [
        "passed over the links best, zoo: they lead to folders that were searched already."
    ]


def test_links_upon_links_are_walked_in_no_time(folder):
    folder.mkdir()
    for level in range(28):  # each leads to the next in two ways: 2 ** 28 paths
        (folder / f"{level}").mkdir()
        for name in ("x", "y"):
            (folder / f"{level}" / name).symlink_to(f"../{level + 1}")
    put(folder / "28" / "a.jpg")
    begin = time.monotonic()
    assert list(listed(folder)) == ["28/a.jpg"]
    assert time.monotonic() - begin < 10


def test_folders_in_folders_without_end_are_walked(folder):
    folder.mkdir()
    place = os.open(folder, os.O_RDONLY)
    for _ in range(1100):
        os.mkdir("a", dir_fd=place)
        inner = os.open("a", os.O_RDONLY, dir_fd=place)
        os.close(place)
        place = inner
    os.close(place)
    put(folder.joinpath(*["a"] * 1100, "b.jpg"))
    try:
        (photo,) = find_photos(folder)
        assert photo.label == "a"
    finally:
        subprocess.run(["rm", "-r", folder], check=True)  # Python's own way goes only as deep as its stack


def test_photos_of_a_folder_that_may_be_listed_but_not_entered_are_found(folder, monkeypatch):
    put(folder / "cat" / "a.jpg")
    put(folder / "b.jpg")
    assert listed(folder) == {"b.jpg": None, "cat/a.jpg": "cat"}
    monkeypatch.chdir(folder.parent)
    folder.parent.chmod(0o755)
    (folder / "cat").chmod(0o444)
    root = os.geteuid() == 0
    try:
        if root:  # who may enter everything becomes somebody who may not, for the time of one call
            os.seteuid(65534)
        assert listed("photos") == {"b.jpg": None, "cat/a.jpg": "cat"}
    finally:
        if root:
            os.seteuid(0)
        (folder / "cat").chmod(0o755)


def test_far_too_many_files_are_refused_in_words(folder, monkeypatch):
    for name in ("a.jpg", "b.jpg", "c.jpg"):
        put(folder / name)
    monkeypatch.setattr("patchvote.photos.walk._MAX_FILES", 2)
    with pytest.raises(PhotoError, match="more than 2 files"):
        find_photos(folder)


def test_names_that_are_not_unicode_are_found(folder):
    folder.mkdir()
    try:
        put(folder / os.fsdecode(b"caf\xe9.jpg"))
    except OSError:
        pytest.skip("this file system takes only Unicode names")
    assert list(listed(folder)) == [os.fsdecode(b"caf\xe9.jpg")]


@pytest.mark.parametrize(
    "text", ["file_name,label\na.jpg,cat\nsub/b.jpg,\n", "file_name;label\r\na.jpg;cat\r\nsub/b.jpg;\r\n"]
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_a_csv_manifest_names_files_relative_to_itself(tmp_path, text, encoding):
    manifest = tmp_path / "list.csv"
    manifest.write_text(text, encoding=encoding)
    photos = find_photos(manifest)
    assert [(photo.name, photo.label) for photo in photos] == [("a.jpg", "cat"), ("sub/b.jpg", None)]
    assert photos[1].source == tmp_path / "sub/b.jpg"


def test_a_jsonl_manifest_may_leave_labels_out(tmp_path):
    manifest = tmp_path / "list.jsonl"
    manifest.write_text(
        '{"file_name": "a.jpg", "label": "Kätzchen"}\n\n'
        '{"file_name": "b.jpg", "size": 3}\n{"file_name": "c.jpg", "label": 7}\n'
    )
    assert listed(manifest) == {"a.jpg": "Kätzchen", "b.jpg": None, "c.jpg": "7"}


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("x.csv", "path,label\na.jpg,cat\n", "must name a column file_name .* got: 'path,label'"),
        ("x.csv", "", "must name a column file_name"),
        ("x.csv", "file_name,label\n", "lists no photos"),
        ("x.csv", "file_name,label\na.jpg,cat\n ,dog\n", "line 3 has no file_name"),
        ("x.csv", "file_name,label\na.jpg,cat\na.jpg,dog\n", "line 3 labels a.jpg 'dog', an earlier line 'cat'"),
        ("x.csv", 'file_name,label\na.jpg,"cat\nb.jpg,dog\n', "is not CSV: .* Is a quote not closed?"),
        ("x.jsonl", '{"file_name": "a.jpg"}\n{"file_name": ', "line 2 is not JSON"),
        ("x.jsonl", '["a.jpg"]', "line 1 must be an object"),
        ("x.jsonl", '{"file_name": "a.jpg", "label": ["cat"]}', "line 1: label must be text"),
    ],
)
def test_a_broken_manifest_says_where(tmp_path, name, text, says):
    (tmp_path / name).write_text(text)
    with pytest.raises(PhotoError, match=says):
        find_photos(tmp_path / name)


def test_lines_end_where_editors_end_them_and_nowhere_else(tmp_path):
    (tmp_path / "x.jsonl").write_text(
        '{"file_name": "a.jpg", "label": "line\u2028break"}\r\n{"file_name": "b.jpg"}\r\n'
    )
    assert listed(tmp_path / "x.jsonl") == {"a.jpg": "line\u2028break", "b.jpg": None}


def test_a_manifest_that_is_not_utf8_says_in_which_line_and_what_to_do(tmp_path):
    (tmp_path / "x.csv").write_bytes("file_name,label\na.jpg,cat\ncafé.jpg,dog\n".encode("cp1252"))
    with pytest.raises(PhotoError, match="not UTF-8 text: line 3, .* 'café.jpg,dog' in Windows-1252. Save it .* UTF-8"):
        find_photos(tmp_path / "x.csv")
    for encoding in ("utf-16-le", "utf-16-be"):
        (tmp_path / "x.csv").write_bytes("file_name\ncafé.jpg\n".encode(encoding))
        with pytest.raises(PhotoError, match="UTF-16 without a byte order mark. Save it"):
            find_photos(tmp_path / "x.csv")
    for encoding in ("utf-16", "utf-32"):
        (tmp_path / "x.csv").write_bytes("file_name\ncafé.jpg\n".encode(encoding) + b"\x00")
        with pytest.raises(PhotoError, match=f"begins like {encoding.upper()}, and what follows is damaged"):
            find_photos(tmp_path / "x.csv")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_manifests_are_read_in_the_encodings_that_spreadsheets_mark(encoding, newline, tmp_path):
    rows = ["file_name,label", "café.jpg,Straße", "桜.jpg,桜"]
    (tmp_path / "x.csv").write_bytes("".join(f"{row}{newline}" for row in rows).encode(encoding))
    assert listed(tmp_path / "x.csv") == {"café.jpg": "Straße", "桜.jpg": "桜"}
    json_rows = ['{"file_name": "café.jpg", "label": "Straße"}', '{"file_name": "桜.jpg", "label": "桜"}']
    (tmp_path / "x.jsonl").write_bytes("".join(f"{row}{newline}" for row in json_rows).encode(encoding))
    assert listed(tmp_path / "x.jsonl") == {"café.jpg": "Straße", "桜.jpg": "桜"}


def test_paths_arrays_and_images_can_be_mixed_in_a_list(tmp_path):
    path = put(tmp_path / "a.jpg")
    photos = find_photos([path, str(path), np.zeros((2, 2)), Image.new("L", (2, 2)), Photo("mine", path, "cat")])
    assert [photo.name for photo in photos[2:]] == ["image 2", "image 3", "mine"]
    assert photos[0].source == photos[1].source == path


def test_one_photo_and_one_array_and_a_stack_of_arrays_are_collections_too(tmp_path):
    assert listed(put(tmp_path / "a.jpg")) == {"a.jpg": None}
    assert len(find_photos(np.zeros((2, 2, 3)))) == 1
    assert len(find_photos(np.zeros((5, 2, 2, 3)))) == 5


@pytest.mark.parametrize(
    ("source", "says"),
    [("missing", "no such file or folder"), ([], "the list is empty"), ([3], "image 0: must be a path, .* got int")],
)
def test_what_cannot_be_photos_is_refused(source, says):
    with pytest.raises(PhotoError, match=says):
        find_photos(source)


def test_a_folder_without_photos_tells_what_is_there(folder):
    folder.mkdir()
    with pytest.raises(PhotoError, match="no photos here or in the folders below. Photos end in"):
        find_photos(folder)
    for index in range(3):
        (folder / f"{index}.NEF").write_bytes(b"x")
    with pytest.raises(PhotoError, match=r"Files there: 3 with \.nef"):
        find_photos(folder)
    shutil.copy(folder / "0.NEF", folder / "x.txt")
    with pytest.raises(PhotoError, match="neither a folder, a manifest"):
        find_photos(folder / "x.txt")
    shutil.copy(folder / "0.NEF", folder / "x.xlsx")
    with pytest.raises(PhotoError, match=r"nor a photo .* Save the table as \.csv\."):
        find_photos(folder / "x.xlsx")


@pytest.mark.parametrize(
    ("labels", "says"),
    [
        (["a", "b", ""], "1 photo has no class, the first is 2.jpg. Name its class in the column of labels"),
        (["a", "", ""], "2 photos have no class, .* Name their class in the column of labels, or leave them out"),
    ],
)
def test_photos_of_a_list_without_a_class_are_not_to_be_moved(labels, says, tmp_path):
    lines = [f"{number}.jpg,{label}" for number, label in enumerate(labels)]
    (tmp_path / "list.csv").write_text("\n".join(["file_name,label", *lines]))
    with pytest.raises(PatchvoteError, match=says):
        labelled(tmp_path / "list.csv", None, 2)


def test_a_list_of_photos_without_labels_is_told_where_labels_go(folder):
    with pytest.raises(PatchvoteError, match="Pass their labels, one per photo, after the photos"):
        labelled([put(folder / "1.png")], None, 2)


def test_a_path_that_cannot_be_looked_at_is_told_in_a_sentence(tmp_path):
    with pytest.raises(PhotoError, match="xxx: cannot be read: File name too long"):
        find_photos("x" * 5000)
    with pytest.raises(PhotoError, match="cannot be read: File name too long"):
        find_photos(f"{'x' * 300}.csv", columns={"file": "path"})


@pytest.mark.parametrize("ask", [lambda path: near_path(path / "absent.jpg"), folder_above])
def test_hints_leave_no_folder_open(ask, tmp_path, monkeypatch):
    monkeypatch.setattr(hints, "_MAX_NAMES", 1)  # fewer than there are
    for name in "abc":
        (tmp_path / "a" / name).mkdir(parents=True)
        (tmp_path / name).mkdir(exist_ok=True)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        assert ask(tmp_path / "a") is not None
    assert [str(warning.message) for warning in seen] == []


def test_a_photo_that_is_listed_with_two_classes_is_refused(folder):
    paths = [put(folder / "1.png"), put(folder / "2.png")]
    assert len(labelled([*paths, paths[0]], ["cat", "dog", "cat"], 2)) == 3
    with pytest.raises(PatchvoteError, match=r"1.png has two classes, 'cat' and 'dog'. Give every photo one class"):
        labelled([*paths, paths[0]], ["cat", "dog", "dog"], 2)
