"""Runs and flow blocks as the small HTML that QTextDocument draws, in the theme's colours.

Every piece of text is escaped here; nothing a model writes becomes markup.
"""

from collections.abc import Sequence
from html import escape

from app.theme import color, font, px
from app.widgets.chat.blocks import Block, Items, Math, Paragraph, Quote, Runs, Table

LINE = "line-height:130%"
HEADINGS = {1: ("title", 600), 2: ("section", 600), 3: ("read", 600)}  # 4-6 as 3
PADDING = "\u202f"  # around inline code; taken out again when text is copied
_UNBROKEN = 28  # longer inline code may wrap


def runs_html(runs: Runs) -> str:
    """Return runs as HTML; code on its own ground, links in link ink."""
    return "".join(_run(run.text, run) for run in runs)


def flow_html(blocks: Sequence[Block], ink: str = "text") -> str:
    """Return paragraphs, headings, formulas, lists and quotes as one piece of HTML."""
    gap = px(9)
    return "".join(
        _block(block, ink, 0 if place == 0 else gap) for place, block in enumerate(blocks)
    )


def table_html(table: Table) -> str:
    """Return a table over the whole width, hairlines between its rows."""
    line, strong = color("line").name(), color("control").name()
    rows = [_row(table.head, table, strong, "600")]
    rows += [_row(row, table, line, "400") for row in table.rows]
    body = "".join(rows)
    return f'<table width="100%" cellspacing="0" cellpadding="0">{body}</table>'


def with_caret(html: str) -> str:
    """Return the HTML with the mark of a running stream after its last word."""
    mark = f'<span style="color:{color("accent").name()}">\u258d</span>'
    place = max(html.rfind("</p>"), html.rfind("</li>"))
    return html + mark if place < 0 else f"{html[:place]}{mark}{html[place:]}"


def _run(text: str, run: object) -> str:
    style = []
    shown = escape(text, quote=True)
    code = getattr(run, "code", False)
    if code:
        family = font("read", 400, mono=True).family()
        size, ground = px(13), color("raised").name()
        style.append(f"font-family:'{family}';font-size:{size}px;background-color:{ground}")
        if len(text) <= _UNBROKEN:
            shown = shown.replace(" ", "&nbsp;")
        shown = f"{PADDING}{shown}{PADDING}"
    else:
        shown = shown.replace("\n", "<br>")
    for flag, rule in (
        ("bold", "font-weight:600"),
        ("italic", "font-style:italic"),
        ("strike", "text-decoration:line-through"),
    ):
        if getattr(run, flag, False):
            style.append(rule)
    if style:
        shown = f'<span style="{";".join(style)}">{shown}</span>'
    href = getattr(run, "href", "")
    if href:
        ink = color("link").name()
        shown = f'<a href="{escape(href, quote=True)}" style="color:{ink}">{shown}</a>'
    return shown


def _block(block: Block, ink: str, above: int, depth: int = 1) -> str:
    match block:
        case Paragraph(runs=runs, level=level):
            return _paragraph(runs, level, ink, above)
        case Math(text=text):
            family = font("read", 400, mono=True).family()
            body = escape(text).replace("\n", "<br>")
            return (
                f'<p style="margin:{above}px 0 0 {px(16)}px;{LINE};white-space:pre-wrap;'
                f"font-family:'{family}';font-size:{px(13)}px\">{body}</p>"
            )
        case Items():
            return _list(block, ink, above, depth)
        case Quote(blocks=blocks):
            return f'<div style="margin-left:{px(14)}px">{flow_html(blocks, "text2")}</div>'
        case _:
            return ""


def _paragraph(runs: Runs, level: int, ink: str, above: int) -> str:
    above += px(5) if level and above else 0
    style = f"margin:{above}px 0 0 0;white-space:pre-wrap;color:{color(ink).name()}"
    if level:
        size, weight = HEADINGS[min(level, 3)]
        pixels = font(size).pixelSize()
        return f'<p style="{style};font-size:{pixels}px;font-weight:{weight}">{runs_html(runs)}</p>'
    return f'<p style="{style};{LINE}">{runs_html(runs)}</p>'


def _list(block: Items, ink: str, above: int, depth: int) -> str:
    tag = "ul" if block.start is None else f'ol start="{block.start}"'
    gap = px(4)
    rows = []
    for number, item in enumerate(block.items):
        space = (above if number == 0 else gap) or 0
        inner = "".join(
            _in_item(part, ink, 0 if place == 0 else gap, depth) for place, part in enumerate(item)
        )
        rows.append(
            f'<li style="margin-top:{space}px;{LINE};color:{color(ink).name()}">{inner}</li>'
        )
    style = f"margin:0;-qt-list-indent:{depth}"
    return f'<{tag} style="{style}">{"".join(rows)}</{tag.split()[0]}>'


def _in_item(block: Block, ink: str, above: int, depth: int) -> str:
    """A list item's first paragraph is inline, so that it stands beside its mark."""
    if isinstance(block, Paragraph) and not block.level and above == 0:
        return f'<span style="white-space:pre-wrap">{runs_html(block.runs)}</span>'
    return _block(block, ink, above, depth + 1)


def _row(cells: Sequence[Runs], table: Table, line: str, weight: str) -> str:
    made = []
    for place, side in enumerate(table.aligns):
        runs = cells[place] if place < len(cells) else ()
        style = (
            f"padding:{px(6)}px {px(12)}px {px(6)}px 0;border-bottom:1px solid {line};"
            f"font-weight:{weight};font-size:{px(13)}px"
        )
        made.append(f'<td align="{side}" valign="top" style="{style}">{runs_html(runs)}</td>')
    return f"<tr>{''.join(made)}</tr>"
