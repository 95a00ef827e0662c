"""The built-in model's text side."""

from pathlib import Path

import pytest

from engine.text.chat import ChatText
from engine.text.tokenizer import Tokenizer


@pytest.fixture(scope="session")
def chat(builtin_model: Path) -> ChatText:
    return ChatText.from_folder(builtin_model)


@pytest.fixture(scope="session")
def tokenizer(chat: ChatText) -> Tokenizer:
    return chat.tokenizer
