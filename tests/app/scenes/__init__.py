"""Every page, card and dialog in every state that a person can meet, for the walk and for pictures.

A scene builds one widget between stubs, so that each state comes at once and always the same.
"""

from tests.app.scenes.chats import CHATS
from tests.app.scenes.memory import MEMORY
from tests.app.scenes.models import MODELS
from tests.app.scenes.setup import SETUP
from tests.app.scenes.stage import DIALOG, PAGE, SMALL, Scene, Stage
from tests.app.scenes.window import WINDOW

SCENES: tuple[Scene, ...] = (*CHATS, *MODELS, *MEMORY, *SETUP, *WINDOW)

__all__ = ["DIALOG", "PAGE", "SCENES", "SMALL", "Scene", "Stage"]
