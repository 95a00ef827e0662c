"""The parts of the chat page: message blocks, composer, list, inspector. Data in, signals out.

No part knows a view model: `app.views.chat` gives them records of `app.services.chat_records` and
listens. Text of models is never trusted: no HTML, no resources, links only on a click.
"""
