"""Words in the person's language: `tr`, and the one rule for every view, widget and view model.

1. Every literal a person can read goes through `tr("English text", name=value)`. The English text
   is the key; values fill `{name}`. Never build a sentence with + or an f-string. Counts:
   `tr_count("{count} line", "{count} lines", n)`.
2. `tr` returns a `Phrase`: a str that remembers key and values. The widgets of `app.widgets`
   (Label, Button, Chip, ...) keep it and say it again by themselves when the language changes.
   So `tr` may also be called early, in tables at module level or in a view model.
3. A plain str given to a widget is data (file name, figure, model output): shown as it is.
4. Qt's own setters (setToolTip, setWindowTitle, setPlaceholderText, setAccessibleName) and painted
   text forget the phrase: set them in a method handed to `app.theme.follow`, or call
   `again(phrase)` at paint time. `theme().changed` also fires on a change of language.

Languages: "en", "zh_CN", "pseudo" (accents, 30 % longer, for layout tests). Catalogues are JSON in
`resources/i18n`. Switch with `app.widgets.look.use(...)`, which tells words and fonts together.
Knows no widget and no theme.
"""

from app.wording.language import LANGUAGES, Language, language, use_language
from app.wording.phrases import Phrase, again, tr, tr_count

__all__ = [
    "LANGUAGES",
    "Language",
    "Phrase",
    "again",
    "language",
    "tr",
    "tr_count",
    "use_language",
]
