from __future__ import annotations

import os

import pytest

from patchvote.errors import PatchvoteError
from patchvote.utils.files import make_folder, write_atomically, write_file


def test_a_link_stays_a_link_and_its_target_is_replaced_and_keeps_its_mode(tmp_path):
    (tmp_path / "shelf").mkdir()
    target, link, second = tmp_path / "shelf" / "real.bin", tmp_path / "link.bin", tmp_path / "second.bin"
    target.write_bytes(b"old")
    target.chmod(0o600)
    link.symlink_to(target)
    second.symlink_to("link.bin")
    write_atomically(second, [b"new"])
    assert second.is_symlink()
    assert link.is_symlink()
    assert target.read_bytes() == b"new"
    assert target.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in (tmp_path / "shelf").iterdir()] == ["real.bin"]


def test_a_private_file_is_private_while_it_is_written(tmp_path):
    path = tmp_path / "private.bin"
    path.write_bytes(b"old")
    path.chmod(0o600)
    seen = []

    def parts():
        seen.extend(other.stat().st_mode & 0o777 for other in tmp_path.iterdir())
        yield b"new"

    write_atomically(path, parts())
    assert seen == [0o600, 0o600]


def test_a_pipe_is_never_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(PatchvoteError, match="pipe cannot be written: something that is no ordinary file"):
        write_file(tmp_path / "pipe", [b"new"])
    assert (tmp_path / "pipe").is_fifo()
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]


@pytest.mark.parametrize("below", ["", "deeper"])
def test_a_file_or_a_link_to_nothing_in_the_way_of_a_folder_is_named(below, tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(PatchvoteError, match="file is a file. Choose another name"):
        make_folder(tmp_path / "file" / below)
    with pytest.raises(PatchvoteError, match="link is a link that leads nowhere. Choose another name"):
        make_folder(tmp_path / "link" / below)
