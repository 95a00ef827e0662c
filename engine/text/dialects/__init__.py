"""How each chat format renders and splits text."""
