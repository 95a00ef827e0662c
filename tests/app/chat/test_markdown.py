"""Markdown to blocks: golden cases, hostile text, and streaming equal to reading at once."""

from hypothesis import example, given, settings
from hypothesis import strategies as st

from app.widgets.chat.blocks import Code, Items, Math, Paragraph, Quote, Rule, Run, Table, is_flow
from app.widgets.chat.markdown import parse, parser, plain_blocks
from app.widgets.chat.math_text import readable
from app.widgets.chat.stream import MarkdownStream

MD = parser()


def flat(block):
    """All text of a block."""
    match block:
        case Paragraph(runs=runs):
            return "".join(r.text for r in runs)
        case Code(text=text) | Math(text=text):
            return text
        case Items(items=items):
            return "\n".join(flat(b) for item in items for b in item)
        case Quote(blocks=blocks):
            return "\n".join(flat(b) for b in blocks)
        case Table(head=head, rows=rows):
            return "\n".join(r.text for row in (head, *rows) for cell in row for r in cell)
    return ""


def test_styles_nest_and_merge():
    """Bold, italic, code, strike, links and bare addresses are runs of one paragraph."""
    text = "a **b *c* d** `x < y` ~~e~~ [f](https://f.example) https://g.example/x?y=1. End"
    (block,) = parse(text)
    assert block.runs == (
        Run("a "),
        Run("b ", bold=True),
        Run("c", bold=True, italic=True),
        Run(" d", bold=True),
        Run(" "),
        Run("x < y", code=True),
        Run(" "),
        Run("e", strike=True),
        Run(" "),
        Run("f", href="https://f.example"),
        Run(" "),
        Run("https://g.example/x?y=1", href="https://g.example/x?y=1"),
        Run(". End"),
    )


def test_nested_lists_keep_their_shape():
    """Two levels, numbers that begin at 3, and code inside an item."""
    text = "3. one\n   - inner\n     more\n4. two\n\n   ```py\n   x = 1\n   ```\n"
    (block,) = parse(text)
    assert block.start == 3
    first, second = block.items
    assert first[1] == Items(((Paragraph((Run("inner\nmore"),)),),))
    assert second[1] == Code("x = 1", "py")
    assert not is_flow(block)
    assert is_flow(parse("- a\n  - b\n- c")[0])


def test_table_keeps_cells_and_sides():
    """Head, rows and alignment; a short row is filled, styles stay."""
    text = "| a | b | c |\n|:--|:-:|--:|\n| 1 | **2** | 3 |\n| x |\n"
    (table,) = parse(text)
    assert table.aligns == ("left", "center", "right")
    assert table.rows[0] == ((Run("1"),), (Run("2", bold=True),), (Run("3"),))
    assert table.rows[1] == ((Run("x"),), (), ())


def test_headings_quotes_rules_and_breaks():
    """One block each, in order."""
    found = parse("# A\n\n> b\n> c\n\n---\n\nd  \ne")
    assert found == (
        Paragraph((Run("A"),), 1),
        Quote((Paragraph((Run("b\nc"),)),)),
        Rule(),
        Paragraph((Run("d\ne"),)),
    )


def test_emoji_and_chinese_pass_through():
    """Nothing is lost outside the basic plane or without spaces."""
    (block,) = parse("你好，**世界** 👩‍💻🎉 naïve")
    assert flat(block) == "你好，世界 👩‍💻🎉 naïve"


def test_html_is_text():
    """Tags, entities and images never become markup or a request."""
    text = (
        '<script>alert(1)</script>\n\n<img src="http://x/y.png"> &lt;b&gt; ![pic](http://x/z.png)'
    )
    first, second = parse(text)
    assert flat(first) == "<script>alert(1)</script>"
    assert flat(second) == '<img src="http://x/y.png"> <b> pic'
    assert second.runs[-1] == Run("pic", href="http://x/z.png")


def test_dangerous_links_are_not_links():
    """markdown-it refuses javascript: and data: targets; the text stays."""
    (block,) = parse("[click](javascript:alert(1)) [d](data:text/html,x)")
    assert all(not run.href for run in block.runs)


def test_math_is_readable():
    """Formulas in and between lines; money is not a formula."""
    (line,) = parse(r"So $x_1^2 \le \frac{a}{b+1}$ and \(\alpha\), for $5 or $10.")
    assert flat(line) == "So x₁² ≤ a/(b+1) and α, for $5 or $10."
    assert parse("$$\n\\sum_{i=1}^{n} i = \\frac{n(n+1)}{2}\n$$") == (Math("∑ᵢ₌₁ⁿ i = (n(n+1))/2"),)
    assert readable(r"\unknown{x} \sqrt{2}") == r"\unknown{x} √(2)"


def test_persons_text_is_shown_as_typed():
    """No markdown in a person's own text, except fenced code."""
    found = plain_blocks("# not a *head*\n  two\n\n```py\na = 1\n\n```\nend")
    assert found == (
        Paragraph((Run("# not a *head*\n  two"),)),
        Code("a = 1\n", "py"),
        Paragraph((Run("end"),)),
    )
    assert plain_blocks("```\nopen") == (Code("open"),)
    assert plain_blocks("  \n") == ()


def test_open_fence_grows_line_by_line_and_closes():
    """An unclosed fence is one open code block; its closing line ends it."""
    stream = MarkdownStream(MD)
    text = "Look:\n\n```python\nfor x in y:\n    print(x)\n"
    assert stream.feed(text) == (Paragraph((Run("Look:"),)),)
    assert stream.open_blocks == (Code("for x in y:\n    print(x)", "python", is_closed=False),)
    text += "`"
    assert stream.feed(text) == ()  # perhaps the end: not shown
    assert stream.open_blocks[0].text.endswith("print(x)")
    text += "``\n\nDone"
    assert stream.feed(text) == (Code("for x in y:\n    print(x)", "python"),)
    assert stream.feed(text, is_done=True) == (Paragraph((Run("Done"),)),)


def test_unclear_last_line_does_not_flicker():
    """`Text` + newline + `-` is not shown as a heading while it may become a list."""
    stream = MarkdownStream(MD)
    for end in ("-", "1", "1.", "#", "##", "=", ">", "| -"):
        stream = MarkdownStream(MD)
        stream.feed(f"Text\n{end}")
        assert stream.open_blocks == (Paragraph((Run("Text"),)),), end


PIECES = st.sampled_from(
    [
        "word ", "**bold** ", "\n", "\n\n", "- item\n", "  - inner\n", "1. one\n", "# head\n",
        "```py\n", "```\n", "~~~\n", "    code\n", "> quote\n", "| a | b |\n|--|--|\n", "| 1 |\n",
        "---\n", "===\n", "`x`", "你好", "😀", "$x^2$ ", "<b>", "  ", "   ```\n", "* ", "text\n",
    ]
)  # fmt: skip


@example(pieces=["```py\n", "  "], cuts=[1])
@example(pieces=["   ```\n", "\n", "  "], cuts=[1])
@given(pieces=st.lists(PIECES, max_size=25), cuts=st.lists(st.integers(1, 7), min_size=1))
@settings(max_examples=150, deadline=None)
def test_stream_cut_anywhere_equals_the_whole_text(pieces, cuts):
    """However the text arrives, the blocks in the end are those of the whole text."""
    text = "".join(pieces)
    stream, closed, at, turn = MarkdownStream(MD), [], 0, 0
    while at < len(text):
        at += cuts[turn % len(cuts)]
        turn += 1
        closed += stream.feed(text[:at])
    closed += stream.feed(text, is_done=True)
    assert tuple(closed) == parse(text, MD)


def test_long_listing_costs_no_parse_per_token(monkeypatch):
    """G-13: inside an open fence markdown-it is not called, however long it gets."""
    stream = MarkdownStream(MD)
    text = "```py\n"
    stream.feed(text)
    calls = []
    monkeypatch.setattr(stream._md, "parse", lambda *a: calls.append(a) or [])
    for number in range(2000):
        text += f"line_{number} = {number}\n"
        stream.feed(text)
    assert not calls
    assert stream.open_blocks[0].text.count("\n") == 1999
