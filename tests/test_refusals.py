"""Arguments that cannot be meant are refused in a sentence, before any work.

`refusals.json` holds exit codes and the sentences of commands; `PATCHVOTE_RECORD_REFUSALS=1` records them again. Of
what the parser of arguments or a function below refuses, only the code is compared.
"""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path

import pytest

from helpers.command import content

SNAPSHOT = Path(__file__).parent / "refusals.json"
RECORD = os.environ.get("PATCHVOTE_RECORD_REFUSALS", "") not in ("", "0")
FIT = "--network tiny.onnx --no-cache"

COMMANDS = f"""\
fit '' new.patchvote
fit photos ''
fit photos new.patchvote --cache=
predict m.patchvote photos -o ''
extrct photos store
predict m.patchvote photos --insist
evaluate m.patchvote photos --insist
predict m.patchvote photos --adapt --insist --threshold 0.1
fit photos new.patchvote --insist
predict m.patchvote photos --json -o a.csv
predict m.patchvote photos -o a.xlsx
predict m.patchvote photos --top x
predict m.patchvote photos --threshold 9
predict m.patchvote - photos
predict m.patchvote 'new/*.jpg'
predict m.patchvote 'nwe/*.jpg'
predict m.patchvote 'photos/[a-b]*'
predict m.patchvote photos --columns file=x
predict m.patchvote list.csv --columns x
predict m.patchvote -x.jpg
predict m.patchvote photos --address here
predict m.patchvote photos --cache c --no-cache
predict photos m.patchvote
predict absent.patchvote x.jpg
evaluate photos m.patchvote
evaluate m.patchvote more
explain photos/iris/1.jpg m.patchvote
explain m.patchvote photos/iris/1.jpg --photos photos
explain m.patchvote photos/iris/1.jpg -o e.gif
explain m.patchvote photos/iris/1.jpg -o -
explain m.patchvote photos/iris/1.jpg --class irs
explain m.patchvote photos -o one.png
explain m.patchvote photos --arrays one.npz
explain m.patchvote photos/iris/1.jpg --arrays npz
add photos m.patchvote
fit m.patchvote photos
export m.onnx m.patchvote
fit photos new.patchvote --report r.html --no-report
fit photos new.patchvote --cache c --no-cache
fit photos new.patchvote --cache photos --network tiny.onnx
fit photos new.patchvote --cache photos/iris/c --network tiny.onnx
fit photos new.patchvote --seed -1
fit photos new.patchvote --jobs 0
fit photos new.patchvote --mode sparse
fit photos new.patchvote --voter nbn
fit photos x.jpg {FIT}
fit photos x.html {FIT}
fit photos . {FIT}
fit photos no/folder/m.patchvote {FIT}
fit absent
fit one new.patchvote {FIT}
fit unreadable new.patchvote {FIT}
extract absent store
extract photos store --network efficientnet-lite9
extract photos store --sides big
extract photos store --count 400
extract photos store --mode patch --sides 64
extract photos store --sides 64 --patch-input 64
cache --yes
cache --clear
cache --cache m.patchvote
info absent
info photos
info photos --card
suggest m.patchvote photos -n 0
suggest photos m.patchvote
suggest m.patchvote photos --copy-into m.patchvote
suggest m.patchvote photos -o x.txt
serve --network tiny.onnx
check m.patchvote
check photos --undo no.jsonl --move away
check photos --undo photos --move away
check photos --apply no.csv --move away
check photos --apply list.csv --undo list.csv
check photos --apply list.csv --test more
check photos --undo list.csv -o x.csv
check photos --move photos/away
check photos --move .
check photos -o list.txt
check list.csv --move away
check photos --test photos
check photos --test ./more/../photos
check photos --test linked
check photos --test photos/iris
check photos --test .
check photos --test links --move away
check numbers.jsonl
demo m.patchvote
demo more
"""


@pytest.fixture
def here(place):
    """A folder with all that the commands name."""
    (place / "list.csv").write_text("file_name,label\nphotos/iris/1.jpg,iris\n")
    (place / "numbers.jsonl").write_text('{"file_name": 3, "label": "x"}\n')
    (place / "new").mkdir()
    for folder, names in (("more/tulip", ["1.jpg"]), ("more/lily", ["1.jpg"]), ("one/iris", ["1.jpg", "2.jpg"])):
        (place / folder).mkdir(parents=True)
        for name in names:
            (place / folder / name).write_bytes((place / "photos/iris" / name).read_bytes())
    for label in ("iris", "rose"):
        (place / "unreadable" / label).mkdir(parents=True)
        (place / "unreadable" / label / "1.jpg").write_bytes(b"no photo")
    (place / "linked").symlink_to(place / "photos")
    (place / "links/iris").mkdir(parents=True)
    (place / "links/iris/5.jpg").symlink_to(place / "photos/iris/5.jpg")
    return place


def test_each_is_refused_with_its_code_and_sentence_and_nothing_is_written(here, command):
    before, found = content(here), {}
    for line in COMMANDS.splitlines():
        done = command(*shlex.split(line))
        assert (done.code in (1, 2), done.out, "Traceback" in done.err) == (True, "", False), line
        assert content(here) == before, line
        of_command = done.code == 2 and "Usage: " not in done.err
        found[line] = [done.code, *(done.err.splitlines() if of_command else [])]
        assert done.err.startswith("patchvote: ") or done.code == 2, line
    if RECORD:
        SNAPSHOT.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    expected = json.loads(SNAPSHOT.read_text(encoding="utf-8"))
    assert list(found) == list(expected)
    assert [line for line in found if found[line] != expected[line]] == []
