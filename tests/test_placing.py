"""Photos that are put into folders: whole, never onto another file, never outside of the folder."""

from __future__ import annotations

import errno
import os
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchvote import PhotoError
from patchvote.photos import placing
from patchvote.photos.placing import How, Placer, copy_new, folder_name, folder_names, move_new

HOSTILE = ["../x", "..", "/etc", "a\\b", "CON", "x.", ".hidden", "-rf", " x", ""]
HOSTILE += ["桜" * 400, "nul\0", "\x1b[2J", "caf\udce9"]


@pytest.fixture
def photo(tmp_path):
    (tmp_path / "in").mkdir()
    path = tmp_path / "in" / "1.jpg"
    path.write_bytes(b"a photo")
    os.utime(path, (1_000_000_000, 1_000_000_000))
    return path


# --- names of folders -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("label", HOSTILE)
def test_no_class_is_named_so_that_its_folder_is_elsewhere(label, tmp_path):
    name = folder_name(label)
    assert (tmp_path / name).resolve().parent == tmp_path.resolve()
    assert len(name.encode()) <= 120
    (tmp_path / name).mkdir()
    assert [path.name for path in tmp_path.iterdir()] == [name]


@given(st.lists(st.text(st.characters(codec=None), max_size=8), unique=True, max_size=8))
def test_all_classes_get_folders_of_their_own_on_every_file_system(labels):
    names = folder_names(labels, ["none of these"])
    keys = [unicodedata.normalize("NFC", name).casefold() for name in [*names.values(), "none of these"]]
    assert list(names) == labels
    assert len(set(keys)) == len(keys)
    for name in names.values():
        assert name not in ("", ".", "..")
        assert not set('/\\:*?"<>|\0') & set(name)
        assert name == name.strip()


# --- copies, links and moves ------------------------------------------------------------------------------------------


def test_a_photo_is_copied_linked_or_moved_with_its_content_and_time(photo, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    copy, link, moved = (
        Placer(Path("out"), how).put(Path("in/1.jpg"), how.name) for how in (How.copy, How.link, How.move)
    )
    assert copy == Path("out/copy/1.jpg")
    assert link.is_symlink()
    assert link.readlink().is_absolute()
    assert [path.read_bytes() for path in (copy, moved)] == [b"a photo"] * 2
    assert [path.stat().st_mtime for path in (copy, moved)] == [1_000_000_000] * 2
    assert moved.stat().st_nlink == 1
    assert not photo.exists()


@pytest.mark.parametrize("how", How)
def test_names_that_are_taken_get_a_number_and_nothing_is_overwritten(how, tmp_path):
    placer = Placer(tmp_path / "out", how)
    (tmp_path / "out" / "cat").mkdir(parents=True)
    (tmp_path / "out" / "cat" / "1.jpg").write_bytes(b"mine")
    (tmp_path / "out" / "cat" / "1 (3).jpg").symlink_to(tmp_path / "nowhere")
    for number, name in enumerate(("1 (2).jpg", "1 (4).jpg", "1 (5).jpg")):
        source = tmp_path / str(number) / "1.jpg"
        source.parent.mkdir()
        source.write_bytes(str(number).encode())
        there = placer.put(source, "cat")
        assert (there.name, there.read_bytes()) == (name, str(number).encode())
    assert (tmp_path / "out" / "cat" / "1.jpg").read_bytes() == b"mine"
    assert (tmp_path / "out" / "cat" / "1 (3).jpg").is_symlink()


@pytest.mark.parametrize("how", How)
def test_a_photo_that_was_copied_before_is_there_once(how, photo, tmp_path):
    there = Placer(tmp_path / "out").put(photo, "cat")
    assert Placer(tmp_path / "out", how).put(photo, "cat") is None
    assert photo.exists() == (how is not How.move)
    assert there.read_bytes() == b"a photo"
    assert list((tmp_path / "out" / "cat").iterdir()) == [there]


def test_a_moved_photo_never_takes_the_place_of_other_bytes_of_the_same_size(photo, tmp_path):
    there = Placer(tmp_path / "out").put(photo, "cat")
    photo.write_bytes(b"a phota")
    os.utime(photo, (1_000_000_000, 1_000_000_000))  # size and time do not tell them apart
    moved = Placer(tmp_path / "out", How.move).put(photo, "cat")
    assert (there.read_bytes(), moved.read_bytes()) == (b"a photo", b"a phota")


def test_a_moved_photo_takes_the_place_of_a_link_to_it(photo, tmp_path):
    link = Placer(tmp_path / "out", How.link).put(photo, "cat")
    assert Placer(tmp_path / "out", How.move).put(photo, "cat") == link
    assert not photo.exists()
    assert not link.is_symlink()
    assert link.read_bytes() == b"a photo"
    assert list((tmp_path / "out" / "cat").iterdir()) == [link]


def test_a_photo_that_is_moved_to_where_it_is_stays(tmp_path):
    (tmp_path / "out" / "cat").mkdir(parents=True)
    photo = tmp_path / "out" / "cat" / "1.jpg"
    photo.write_bytes(b"a photo")
    (tmp_path / "other").symlink_to(tmp_path / "out")  # the same folder under another name
    for source in (photo, tmp_path / "other" / "cat" / "1.jpg"):
        assert Placer(tmp_path / "out", How.move).put(source, "cat") is None
        assert photo.read_bytes() == b"a photo"


def test_without_hard_links_copies_and_moves_are_the_same(photo, tmp_path, monkeypatch):
    def refused(*_):
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", refused)
    copy_new(photo, tmp_path / "copy.jpg")
    with pytest.raises(FileExistsError):
        copy_new(photo, tmp_path / "copy.jpg")
    move_new(photo, tmp_path / "moved.jpg")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["copy.jpg", "in", "moved.jpg"]
    assert (tmp_path / "copy.jpg").read_bytes() == (tmp_path / "moved.jpg").read_bytes() == b"a photo"


@pytest.mark.parametrize(("owner", "name"), [(placing.shutil, "copyfileobj"), (Path, "replace")])
def test_ctrl_c_leaves_no_part_of_a_copy_and_no_empty_file(owner, name, photo, tmp_path, monkeypatch):
    def interrupted(first, *more):
        if more[1:]:
            more[0].write(b"a ph")
        raise KeyboardInterrupt

    monkeypatch.setattr(owner, name, interrupted)
    with pytest.raises(KeyboardInterrupt):
        Placer(tmp_path / "out").put(photo, "cat")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [photo]


def test_a_photo_that_cannot_be_removed_is_not_moved(photo, tmp_path, monkeypatch):
    unlink = Path.unlink

    def refused(path, **options):
        if path == photo:
            raise PermissionError(errno.EACCES, "not yours")
        unlink(path, **options)

    monkeypatch.setattr(Path, "unlink", refused)
    with pytest.raises(PhotoError, match="it cannot be moved: not yours"):
        Placer(tmp_path / "out", How.move).put(photo, "cat")
    assert photo.exists()
    assert not (tmp_path / "out" / "cat" / "1.jpg").exists()


# --- what is refused --------------------------------------------------------------------------------------------------


def test_nothing_is_put_outside_of_the_folder_by_dots_or_links(photo, tmp_path):
    placer = Placer(tmp_path / "out")
    with pytest.raises(PhotoError, match="leads outside of"):
        placer.put(photo, "../elsewhere")
    (tmp_path / "out").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out" / "cat").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PhotoError, match="leads outside of"):
        placer.put(photo, "cat/young")
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_links_are_not_moved_and_pipes_are_not_copied(photo, tmp_path):
    (tmp_path / "in" / "2.jpg").symlink_to(photo)
    os.mkfifo(tmp_path / "in" / "3.jpg")
    for how, name, reason in ((How.move, "2.jpg", "a link"), (How.copy, "3.jpg", "pipe"), (How.move, "3.jpg", "file")):
        with pytest.raises(PhotoError, match=reason):
            Placer(tmp_path / "out", how).put(tmp_path / "in" / name, "cat")
    assert (tmp_path / "in" / "2.jpg").is_symlink()
