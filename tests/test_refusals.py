"""Arguments that cannot be meant are refused before any work, in words that name what is wrong."""

from __future__ import annotations

import shlex

import pytest

from helpers.command import content

FIT = "--network tiny.onnx --no-cache"

# Exit code and a keyword of the message, then the command.
REFUSED = f"""\
2 an argument is empty | fit photos ''
2 an argument is empty | fit photos new.patchvote --cache=
2 | extrct photos store
2 --insist | predict m.patchvote photos --insist
2 --insist | fit photos new.patchvote --insist
2 --threshold | predict m.patchvote photos --adapt --insist --threshold 0.1
2 --json | predict m.patchvote photos --json -o a.csv
2 .csv or .jsonl | predict m.patchvote photos -o a.xlsx
2 --top | predict m.patchvote photos --top x
2 --threshold | predict m.patchvote photos --threshold 9
2 --link | predict m.patchvote photos --link
2 --move | predict m.patchvote photos --move
2 exclude | predict m.patchvote photos --sort-into sorted --link --move
1 not a folder | predict m.patchvote photos --sort-into m.patchvote
2 --columns | predict m.patchvote list.csv --columns x
2 | predict m.patchvote -x.jpg
2 --engine ray | predict m.patchvote photos --address here
2 --no-cache | predict m.patchvote photos --cache c --no-cache
2 not a model | predict photos m.patchvote
1 tiny.onnx | export tiny.onnx m.patchvote
1 check the pattern | predict m.patchvote 'new/*.jpg'
1 absent.patchvote | predict absent.patchvote x.jpg
1 'lily', 'tulip' | evaluate m.patchvote more
2 nbnn | explain m.patchvote photos/iris/1.jpg --photos photos
1 iris | explain m.patchvote photos/iris/1.jpg --class irs
2 --no-report | fit photos new.patchvote --report r.html --no-report
2 --seed | fit photos new.patchvote --seed -1
2 --jobs | fit photos new.patchvote --jobs 0
2 --mode | fit photos new.patchvote --mode sparse
1 nbnn | fit photos new.patchvote --voter nbn
1 it is a folder | fit photos . {FIT}
1 there is no folder | fit photos no/folder/m.patchvote {FIT}
1 absent | fit absent
1 one class | fit one new.patchvote {FIT}
1 no photo can be read | fit unreadable new.patchvote {FIT}
1 absent | extract absent store
1 Did you mean 'efficientnet-lite | extract photos store --network efficientnet-lite9
2 whole numbers | extract photos store --sides big
2 --mode patch | extract photos store --count 400
2 --mode dense | extract photos store --mode patch --sides 64
1 is no folder | cache --cache m.patchvote
1 no such file | info absent
1 is not a store | info photos
2 --count | suggest m.patchvote photos -n 0
1 not a folder | suggest m.patchvote photos --copy-into m.patchvote
1 m.patchvote | check m.patchvote
1 numbers.jsonl | check numbers.jsonl
2 no.jsonl | check photos --undo no.jsonl --move away
2 no.csv | check photos --apply no.csv --move away
2 --undo | check photos --apply list.csv --undo list.csv
2 outside of | check photos --move photos/away
2 outside of | check photos --move .
2 one folder per class | check list.csv --move away
1 m.patchvote | demo m.patchvote
1 --force | demo more
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
    return place


def test_each_is_refused_with_its_code_and_a_message_and_nothing_is_written(here, command):
    before = content(here)
    for line in REFUSED.splitlines():
        expected, _, words = line.partition(" |")
        code, _, keyword = expected.partition(" ")
        done = command(*shlex.split(words))
        assert (done.code, done.out, keyword in done.err) == (int(code), "", True), (line, done.err)
        assert done.err.startswith(("patchvote: ", "Usage: ")), line
        assert content(here) == before, line
