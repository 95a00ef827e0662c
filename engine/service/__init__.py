"""The face that pipe, cli and api share: load, generate, cancel, resize, stats. Thread-safe."""

from engine.service.service import EngineService

__all__ = ["EngineService"]
