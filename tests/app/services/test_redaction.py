"""What is hidden in a report, and that nothing else is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.services.redaction import redact


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("with hf_abcdefgh1234 and sk-proj-abcdefgh1", "with <key> and <key>"),
        ("Authorization: Bearer abc.def-123", "Authorization: Bearer <key>"),
        ('{"token": "xyz123", "a": 1}', '{"token": "<key>", "a": 1}'),
        ("password=hunter2 next", "password=<key> next"),
        ("through http://me:hunter2@proxy:8080/x", "through http://<login>@proxy:8080/x"),
        ("mail a.b@example.org now", "mail <mail> now"),
        ("/home/zoe/models and C:\\Users\\Zoe\\x", "/home/<name>/models and C:\\Users\\<name>\\x"),
        ("'C:\\\\Users\\\\Zoe\\\\x'", "'C:\\\\Users\\\\<name>\\\\x'"),
        ("/Users/zoe: no such folder", "/Users/<name>: no such folder"),
        ("host 192.168.178.20:8000 refused", "host <address>:8000 refused"),
        ("HF_TOKEN=abc.def next", "HF_TOKEN=<key> next"),
        ("access_token: abc next", "access_token: <key> next"),
        ("client_secret=abc&x", "client_secret=<key>"),
        ("password=\\abc", "password=<key>"),
        ('{"token": "a b", "c": 1}', '{"token": "<key>", "c": 1}'),
        ("{'api_key': 'a \\' b', 'c': 1}", "{'api_key': '<key>', 'c': 1}"),
        (r'"{\"token\": \"a b\", \"c\": 1}"', r'"{\"token\": \"<key>\", \"c\": 1}"'),
        ("token='cut a b", "token='<key>"),
        ("Authorization: Bearer hf_abcdefgh1234 x", "Authorization: Bearer <key> x"),
        ('Authorization: Digest username="zoe", nonce="x"', "Authorization: <key>"),
        ("Proxy-Authorization: NTLM abc=\nnext", "Proxy-Authorization: <key>\nnext"),
        ("get /v1?key=AIzaShort&alt=sse", "get /v1?key=<key>&alt=sse"),
        ("with AIzaSyA-abcdefgh and ghp_abcdefgh12", "with <key> and <key>"),
        ("github_pat_11ABCDEFG_abc", "<key>"),
        ("http://user:p@ss@proxy:3128", "http://<login>@proxy:3128"),
        ("http://user:pa/ss@proxy:3128", "http://<login>@proxy:3128"),
        ("by user:pw@proxy:3128.", "by <login>@proxy:3128."),
        ("by user:p@ss@proxy.example:3128", "by <login>@proxy.example:3128"),
        ("at [2001:db8::5]:8000 refused", "at [<address>]:8000 refused"),
        ("fe80::1%eth0: no route; fd00:1:2:3:4:5:6:7.", "<address>: no route; <address>."),
        ("C:\\Users\\Max Mustermann\\x", "C:\\Users\\<name>\\x"),
        ("C:/Users/Max Mustermann/x", "C:/Users/<name>/x"),
    ],
)
def test_redact_then_only_the_secret_part_is_gone(text, hidden):
    """Each kind, in the forms that logs have (case D-10: a token is in no log)."""
    assert redact(text).text == hidden


@pytest.mark.parametrize(
    "text",
    [
        "listening on 127.0.0.1:1919",
        "512 tokens in 3.2 s, token rate fine",
        "driver 576.88, torch 2.13.0, kernel 6.1.0",
        "loaded Qwen3-30B-A3B-FP8 from /data/models",
        "basic settings, secret sauce",
        "12:30:05 engine: ready, 2026:08:12",
        "c10::add, std::vector, at::detail::x, feed::add and ::1",
        "D:\\models\\org@main and http://127.0.0.1:1919/v1",
    ],
)
def test_redact_when_nothing_is_private_then_untouched(text):
    """A report that hides everything helps nobody."""
    found = redact(text, ("me", "root", "user"))
    assert (found.text, found.marks, found.counts) == (text, (), {})


def test_names_then_hidden_as_words_in_any_case():
    """The account's and the computer's; not inside other words, not what everybody has."""
    found = redact("zoe-pc: ZOE opened zoetrope as root", ("zoe", "zoe-pc", "root"))
    assert "zoe-pc" not in found.text
    assert "ZOE" not in found.text
    assert "zoetrope as root" in found.text


NAMES = ("Max", "Max Mustermann", "pc-max")


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("C:\\Users\\Max Mustermann\\AppData\\x", "C:\\Users\\<name>\\AppData\\x"),
        ("/home/Max Mustermann: full", "/home/<name>: full"),
        ("Max Mustermann on PC-Max", "<name> on <name>"),
        ("token=Max Mustermann", "token=<key>"),
        ("http://Max:pw@pc-max:3128", "http://<login>@<name>:3128"),
        ("Max:pw@pc-max:3128", "<login>@<name>:3128"),
        ("hf_abcdefgh-max-rest", "<key>"),
        ("a.max@pc-max.example", "<mail>"),
    ],
)
def test_names_when_of_two_words_or_in_a_secret_then_nothing_is_left_over(text, hidden):
    """The longest first, before the patterns; a name in a secret does not cut it."""
    assert redact(text, NAMES).text == hidden


def test_marks_then_they_stand_where_something_was():
    """Places for the preview, and counts by kind."""
    found = redact("a@b.org, hf_abcdefgh1234, c@d.org")
    assert [found.text[start:end] for start, end in found.marks] == ["<mail>", "<key>", "<mail>"]
    assert found.counts == {"mail": 2, "key": 1}


SECRETS = ("hf_Sup3rSecretKey", "sk-Sup3rSecretKey")


@given(st.text(max_size=60), st.sampled_from(SECRETS), st.text(max_size=60))
def test_redact_in_any_text_then_no_key_survives_and_twice_is_once(before, secret, after):
    """Whatever stands around it, as long as it stands by itself."""
    once = redact(f"{before} {secret} {after}")
    assert secret not in once.text
    assert redact(once.text).text == once.text
