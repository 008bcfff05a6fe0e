"""One patch file: round trip, fields, mail, damage; git mailinfo and git am as oracles."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from patchwright.diff import CorruptPatch
from patchwright.errors import InputError
from patchwright.fields import STATUS_WORDS
from patchwright.git import Git
from patchwright.patch import Need, Patch
from strategies import Plan, made, plans

PATH = Path("patches/0005-flashinfer-x.patch")
OID = "0123456789012345678901234567890123456789"
DIFF = f"""\
diff --git a/f.c b/f.c
index {OID}..{OID} 100644
--- a/f.c
+++ b/f.c
@@ -1 +1 @@
-one
+two
--\x20
2.39.5

"""
FIELDS = """\
Upstream: flashinfer 0.6.3
Depends: 0003 (so that the kernel (480 of them) is there), 0004
Depends: 0002 (order)
Arch: sm_120, sm_121
Gate: flashinfer/jit/comm.py::gen_trtllm_comm_module
Smoke: tests/smoke/test_0005_x.py
Smoke: tests/smoke/test_0005_y.py
Upstream-Status: Submitted [https://example.com/1]
Bug: https://example.com/2
X-Our-Own: kept,
  with its continuation
"""
STAT = " f.c | 2 +-\n 1 file changed, 1 insertion(+), 1 deletion(-)\n\n"


def mail(
    message: str = "Why.\n\nSigned-off-by: A <a@example.com>\n",
    fields: str = FIELDS,
    *,
    subject: str = "[PATCH] jit: build it",
    extra: str = "",
    diff: str = DIFF,
) -> bytes:
    head = f"From {OID} Mon Sep 17 00:00:00 2001\nFrom: A <a@example.com>\n"
    head += f"Date: Tue, 14 Nov 2023 22:13:21 +0000\nSubject: {subject}\n{extra}\n"
    return f"{head}{message}---\n{fields}\n{STAT}{diff}".encode()


def parse(raw: bytes) -> Patch:
    return Patch.parse(raw, PATH)


def mailinfo(folder: Path, raw: bytes) -> tuple[dict[str, str], bytes]:
    """Return what ``git mailinfo -b`` reads in a mail: its headers, and the message."""
    message = folder / "message"
    done = Git().run("mailinfo", "-b", str(message), str(folder / "patch"), data=raw, cwd=folder)
    rows = (line.partition(": ") for line in done.stdout.decode().splitlines())
    return {name: value for name, _, value in rows}, message.read_bytes()


# Real git writes, git reads the same


@settings(max_examples=25, deadline=None)
@given(plans(max_commits=2), st.data())
def test_what_git_wrote_comes_back_byte_for_byte_and_edits_change_only_themselves(
    plan: Plan, data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as name:
        result = made(Path(name) / "repo", plan)
        for raw, commit in zip(result.patches, plan.commits, strict=True):
            patch = parse(raw)
            assert patch.format() == raw
            read, message = mailinfo(Path(name), raw)
            assert patch.title == read["Subject"]
            assert patch.author.replace('"', "") == f"{read['Author']} <{read['Email']}>"
            assert patch.date == read["Date"]
            assert patch.message_text == message.decode().strip("\n")
            edited = patch.with_fields({"Upstream": ["x 1"], "Bug": ["a", "b"]})
            assert edited.format().replace(b"Upstream: x 1\nBug: a\nBug: b\n\n", b"") == raw
            assert [c.text for c in edited.changes] == [c.text for c in patch.changes]
            assert mailinfo(Path(name), edited.format())[1] == message
            title = data.draw(st.sampled_from(("short", "Grüße " * 20, "[jit] x")))
            other = edited.with_message("Nö.\n".encode(), title)
            read, message = mailinfo(Path(name), other.format())
            assert read["Subject"] == other.title == title.strip()
            assert message.decode() == "Nö.\n" == other.message_text + "\n"
            assert other.raw[other.parts.message_end :] == edited.raw[edited.parts.message_end :]
            assert commit.title.endswith(patch.title)


def test_git_am_takes_a_patch_with_fields_and_drops_them(tmp_path: Path) -> None:
    git = Git(tmp_path / ".git")
    Git().run("init", "-q", "--", ".", cwd=tmp_path)
    (tmp_path / "f.c").write_bytes(b"one\n")
    work = {"GIT_WORK_TREE": str(tmp_path)}
    git.run("add", "f.c", cwd=tmp_path, env=work)
    git.run("commit", "-qm", "base", cwd=tmp_path, env=work)
    git.run("am", "--keep-cr", data=mail(), cwd=tmp_path, env=work)
    assert (tmp_path / "f.c").read_bytes() == b"two\n"
    body = git.run("log", "-1", "--format=%B", cwd=tmp_path).stdout
    assert body == b"jit: build it\n\nWhy.\n\nSigned-off-by: A <a@example.com>\n\n"


# Fields


def test_every_field_is_read() -> None:
    patch = parse(mail())
    assert (patch.upstream, patch.made_for) == ("flashinfer", "0.6.3")
    assert patch.depends == (
        Need(3, "so that the kernel (480 of them) is there"), Need(4, ""), Need(2, "order")
    )  # fmt: skip
    assert patch.arch == ("sm_120", "sm_121")
    assert patch.gates == ("flashinfer/jit/comm.py::gen_trtllm_comm_module",)
    assert patch.smoke == ("tests/smoke/test_0005_x.py", "tests/smoke/test_0005_y.py")
    assert patch.upstream_status == "Submitted [https://example.com/1]"
    assert patch.bugs == ("https://example.com/2",)
    last = patch.fields[-1]
    assert (last.name, last.value) == ("X-Our-Own", "kept, with its continuation")
    assert patch.raw.split(b"\n")[last.line - 1].startswith(b"X-Our-Own:")


def test_names_of_fields_are_read_in_any_case() -> None:
    assert parse(mail(fields="upstream: x 1\nDEPENDS: 1\n")).depends == (Need(1, ""),)


@pytest.mark.parametrize(
    ("fields", "line", "what"),
    [
        ("Depends: seven\n", 10, "'seven' is not a list of needed patches"),
        ("Arch: sm_120\nDepends: 0007 (why\n", 11, "is not a list of needed patches"),
        ("Depends: 0007 0009\n", 10, "is not a list of needed patches"),
        ("Upstream: flashinfer at 0.6.3\n", 10, "Upstream must be a name and a version"),
        ("Upstream: a 1\nUpstream: b 1\n", 11, "Upstream stands here a second time"),
        ("Upstream-Status: Done\n", 10, "'Done' is no Upstream-Status"),
        ("Smoke: ../x.py\n", 10, "lies outside of the project"),
        ("Smoke: /x.py\n", 10, "lies outside of the project"),
        ("Upstream: a 1\nDepends 0007\n", 11, "neither 'Name: value' nor an indented"),
        ("Upstream: a 1\n\nDepends: 0007\n", 12, "the field Depends stands outside"),
        ("Some prose.\nDepends: 0007\n", 11, "the field Depends stands outside"),
    ],
)
def test_a_field_that_cannot_be_read_is_named_with_its_line(
    fields: str, line: int, what: str
) -> None:
    with pytest.raises(InputError) as raised:
        parse(mail(fields=fields))
    assert what in raised.value.what
    assert raised.value.where == f"{PATH}:{line}"
    assert raised.value.next_step


def test_the_words_for_the_upstream_status_are_listed() -> None:
    with pytest.raises(InputError) as raised:
        parse(mail(fields="Upstream-Status: Merged\n"))
    assert all(word in raised.value.next_step for word in STATUS_WORDS)


@pytest.mark.parametrize("word", STATUS_WORDS)
def test_each_word_for_the_upstream_status_is_taken(word: str) -> None:
    assert parse(mail(fields=f"Upstream-Status: {word}\n")).upstream_status == word


def test_a_diffstat_right_below_the_fields_is_no_continuation() -> None:
    raw = mail().replace(b"continuation\n\n", b"continuation\n")
    assert parse(raw).fields == parse(mail()).fields


@pytest.mark.parametrize("prose", ["v2: rebased\nand more\n", "Changes since v1:\n- none\n", ""])
def test_prose_below_the_line_is_left_alone(prose: str) -> None:
    patch = parse(mail(fields=prose))
    assert patch.fields == ()
    assert patch.changes


def test_bytes_that_are_not_utf8_survive_an_edit() -> None:
    raw = mail(fields="Upstream: a 1\nX: caf\n").replace(b"caf", b"caf\xe9")
    edited = parse(raw).with_fields({"X": [parse(raw).fields[1].value], "upstream": ["a 2"]})
    assert edited.format() == raw.replace(b"a 1", b"a 2")


def test_a_field_is_changed_in_its_place_added_at_the_end_and_removed() -> None:
    patch = parse(mail())
    assert patch.with_fields({"Smoke": ["s.py"]}).format() == mail().replace(
        b"tests/smoke/test_0005_x.py\nSmoke: tests/smoke/test_0005_y.py", b"s.py"
    )
    assert patch.with_fields({"New": ["1"]}).format() == mail().replace(
        b"continuation\n", b"continuation\nNew: 1\n"
    )
    assert patch.with_fields({"X-Our-Own": []}).format() == mail().replace(
        b"X-Our-Own: kept,\n  with its continuation\n", b""
    )
    with pytest.raises(InputError):
        patch.with_fields({"Bug": ["a\nUpstream: evil 1"]})


# The mail


@pytest.mark.parametrize(
    ("subject", "title"),
    [
        ("[PATCH] plain", "plain"),
        ("[PATCH v2 3/7] numbered", "numbered"),
        ("[RFC PATCH] rfc", "rfc"),
        ("[PATCH] [Bugfix] kept", "[Bugfix] kept"),
        ("Re: [PATCH] answer", "answer"),
        ("[PATCH] folded\n over two\n\tlines", "folded over two lines"),
        ("[PATCH] =?UTF-8?q?Gr=C3=BC=C3=9Fe?= =?utf-8?B?IPCfkYs=?=", "Grüße 👋"),
        ("=?ISO-8859-1?Q?[PATCH]_caf=E9?=", "café"),
        ("[PATCH] =?nonsense?q?x?=", "=?nonsense?q?x?="),
    ],
)
def test_the_title_is_the_subject_as_git_reads_it(subject: str, title: str, tmp_path: Path) -> None:
    raw = mail(subject=subject)
    assert parse(raw).title == title
    assert parse(raw).format() == raw
    if "nonsense" not in subject:
        assert mailinfo(tmp_path, raw)[0]["Subject"] == title


def test_header_lines_in_the_message_win_and_are_no_message(tmp_path: Path) -> None:
    raw = mail("\nFrom: =?utf-8?q?J=C3=BCrgen?= <j@example.com>\nSubject: other\n\nWhy.\n")
    patch = parse(raw)
    assert (patch.author, patch.title) == ("Jürgen <j@example.com>", "other")
    assert patch.message == b"Why.\n"
    read, message = mailinfo(tmp_path, raw)
    assert (read["Author"], read["Subject"], message) == ("Jürgen", "other", b"Why.\n")


def test_a_message_in_another_charset_is_decoded() -> None:
    extra = "MIME-Version: 1.0\nContent-Type: text/plain; charset=ISO-8859-15\n"
    extra += "Content-Transfer-Encoding: 8bit\n"
    raw = mail("100 EUR\n", extra=extra).replace(b"EUR", b"\xa4")
    assert parse(raw).message_text == "100 €"
    assert parse(raw).changes


@pytest.mark.parametrize(
    ("extra", "what"),
    [
        ("Content-Transfer-Encoding: quoted-printable\n", "encoded as quoted-printable"),
        ("Content-Transfer-Encoding: base64\n", "encoded as base64"),
        ("Content-Type: multipart/mixed; boundary=x\n", "several parts"),
    ],
)
def test_an_encoded_mail_is_refused_with_its_line(extra: str, what: str) -> None:
    with pytest.raises(CorruptPatch, match=what) as raised:
        _ = parse(mail(extra=extra)).changes
    assert raised.value.line == 5
    assert "git am" in raised.value.next_step


def test_a_patch_that_a_mail_client_gave_crlf_reads_like_the_original(tmp_path: Path) -> None:
    raw = mail().replace(b"\n", b"\r\n")
    patch = parse(raw)
    assert patch.fields == tuple(
        type(f)(f.name, f.value, f.line, f.start, f.end) for f in parse(mail()).fields
    )
    assert patch.changes == parse(mail()).changes
    assert (patch.title, patch.author) == ("jit: build it", "A <a@example.com>")
    assert patch.message_text == parse(mail()).message_text
    edited = patch.with_fields({"Bug": ["b"]}).with_message(b"New.\n", "other")
    assert edited.format().count(b"\n") == edited.format().count(b"\r\n")
    assert (edited.title, edited.message_text) == ("other", "New.")
    plain = parse(mail()).with_fields({"Bug": ["b"]}).with_message(b"New.\n", "other")
    assert edited.format().replace(b"\r\n", b"\n") == plain.format()


def test_crlf_content_in_a_patch_with_lf_headers_is_content() -> None:
    patch = parse(mail(diff=DIFF.replace("-one", "-one\r").replace("+two", "+two\r")))
    assert patch.changes[0].hunks[0].new == [b"two\r\n"]


# Damage


UNINDENTED = "Why:\n\ndiff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n"


@pytest.mark.parametrize(
    ("raw", "line", "what"),
    [
        (mail("Why.\n---\nMore.\n"), 7, "this bare '---' in the message cuts it"),
        (mail("Why.\n---  \nMore.\n"), 7, "this bare '---' in the message cuts it"),
        (mail(UNINDENTED), 8, "take this line of the message as the start of the diff"),
        (mail("--- a/x\n+++ b/x\n"), 6, "take this line of the message as the start"),
        (mail("Index: x\n"), 6, "take this line of the message as the start"),
        (mail().replace(b"\n---\n", b"\n"), 24, "no '---' line stands between"),
        (mail(diff=""), 24, "the patch holds no diff"),
        (mail(diff="-- \n2.39.5\n"), 26, "the patch holds no diff"),
        (mail(diff="--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n"), 25, "without its 'diff --git'"),
        (mail(diff="diff --cc x\nindex 1,2..3\n"), 25, "combined diff of a merge"),
        (mail(f"From {OID} Mon Sep 17 00:00:00 2001\n"), 6, "start of another mail"),
        (DIFF.encode(), 1, "no mail header stands at the top"),
        (b"", 1, "no mail header"),
        (b"\n\n", 1, "no mail header"),
        (mail(diff=DIFF + mail().decode()), 35, "a second patch stands in this file"),
        (mail(diff=DIFF.replace("@@ -1 +1", "@@ -1,2 +1")), 29, "says 2 old and 1 new"),
        (mail()[: mail().index(b"+two") + 3], 31, "its last newline is missing"),
    ],
)
def test_damage_is_found_with_its_line(raw: bytes, line: int, what: str) -> None:
    patch = parse(raw)
    with pytest.raises(CorruptPatch) as raised:
        _ = patch.changes
    assert what in raised.value.reason
    assert raised.value.line == line
    assert raised.value.where == f"{PATH}:{line}"
    assert patch.format() == raw


def test_the_fields_of_a_damaged_patch_are_read_all_the_same() -> None:
    for message in ("Why.\n---\nMore.\n", UNINDENTED):
        assert parse(mail(message)).upstream == "flashinfer"


@pytest.mark.parametrize(
    "message", ["a\n---\nb\n", UNINDENTED, f"From {OID} Mon Sep 17 00:00:00 2001"]
)
def test_a_message_that_breaks_the_patch_is_not_written(message: str) -> None:
    with pytest.raises(CorruptPatch):
        parse(mail()).with_message(message.encode())


def test_a_missing_signature_and_a_signature_without_newline_are_fine() -> None:
    assert parse(mail(diff=DIFF.rpartition("-- \n")[0])).changes
    assert parse(mail()[:-2]).changes


@pytest.mark.parametrize("name", ["x.patch", "12-x.patch", "0001.patch", "0000-cover-letter.patch"])
def test_a_file_name_without_a_number_is_refused(name: str) -> None:
    with pytest.raises(InputError) as raised:
        Patch.parse(mail(), Path(name))
    assert raised.value.where == name


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200), st.integers(0, 2000))
def test_no_bytes_break_the_reader(junk: bytes, place: int) -> None:
    raw = mail()
    at = place % len(raw)
    for text in (junk, raw[:at] + junk + raw[at:], raw[:at] + raw[at + len(junk) :]):
        with contextlib.suppress(InputError):
            patch = parse(text)
            _ = (patch.title, patch.author, patch.message_text, patch.changes)
