"""Reusable widgets in the look of the tokens; real Qt controls underneath.

Import from the modules (`from app.widgets.buttons import Button`) or the basics from here:

layout   hbox, vbox, holder, fixed, Scroll                  labels   Label, Elide, Icon, Dot, legend
cards    Card, Line, card_title, page_head, EmptyState      chips    Chip, StatePill
buttons  Button, Toggle, Segmented                          inputs   Field, LineField, Combo, Slider
bars     Bar                                                icons    draw, icon
dialogs  ask (before what cannot be undone)                 toasts   shown by the main window

Texts follow the rule in `app.wording`: a `tr(...)` phrase is said again after a change of language,
a plain str is data. Lengths in constructors are px at 100 % zoom and follow the zoom.
"""

from app.widgets.bars import Bar
from app.widgets.buttons import Button, Segmented, Toggle
from app.widgets.cards import Card, EmptyState, Line, card_title
from app.widgets.chips import Chip, StatePill
from app.widgets.inputs import Combo, Field, LineField, Slider
from app.widgets.labels import Dot, Elide, Icon, Label, legend
from app.widgets.layout import Scroll, fixed, hbox, holder, vbox

__all__ = [
    "Bar",
    "Button",
    "Card",
    "Chip",
    "Combo",
    "Dot",
    "Elide",
    "EmptyState",
    "Field",
    "Icon",
    "Label",
    "Line",
    "LineField",
    "Scroll",
    "Segmented",
    "Slider",
    "StatePill",
    "Toggle",
    "card_title",
    "fixed",
    "hbox",
    "holder",
    "legend",
    "vbox",
]
