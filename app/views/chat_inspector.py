"""Binds the inspector to the chat on screen: prompt, preset, reasoning, sampling, context."""

from PySide6.QtCore import QObject

from app.viewmodels.chat import ChatViewModel
from app.widgets.chat.inspector import ContextFill, Inspector


class InspectorLink(QObject):
    """Shows the values of the chat in the inspector and hands on what is changed there."""

    def __init__(self, inspector: Inspector, vm: ChatViewModel) -> None:
        super().__init__(inspector)
        self._inspector, self._vm = inspector, vm
        inspector.prompt_changed.connect(vm.set_system_prompt)
        inspector.changed.connect(self._change_sampling)
        inspector.reset.connect(self._reset_sampling)
        inspector.reasoned.connect(vm.set_reasoning)
        row, presets = inspector.presets, vm.presets
        row.chosen.connect(self._choose_preset)
        row.saved_as.connect(self._save_preset_as)
        row.saved.connect(self._save_preset)
        row.deleted.connect(presets.delete)
        presets.changed.connect(self._show_presets)
        vm.options_changed.connect(self.show_options)
        vm.context.changed.connect(self.show_context)
        self.show_options()
        self.show_context()

    def show_options(self) -> None:
        """Show prompt, sampling, reasoning and preset of this chat."""
        chat, inspector = self._vm.talk.chat, self._inspector
        inspector.show_prompt(chat.system_prompt)
        inspector.show_sampling(self._vm.sampling, chat.sampling is not None)
        inspector.show_reasoning(chat.reasoning)
        self._show_presets()
        self.show_context()

    def show_context(self) -> None:
        """Show what fills the context."""
        context = self._vm.context
        self._inspector.show_context(
            ContextFill(
                used=context.used_tokens,
                draft=context.draft_tokens,
                capacity=context.capacity_tokens,
                system=context.system_tokens,
                files=context.files_tokens,
                longest_reply=self._vm.sampling.max_tokens,
            )
        )

    def _show_presets(self) -> None:
        presets = self._vm.presets
        self._inspector.presets.set_state(presets.names, presets.current, presets.is_changed)

    def _choose_preset(self, name: str) -> None:
        self._inspector.flush()
        self._vm.presets.choose(name)

    def _save_preset_as(self, name: str) -> None:
        self._inspector.flush()  # what is being typed belongs to it
        self._vm.presets.save_as(name)

    def _save_preset(self) -> None:
        self._inspector.flush()
        self._vm.presets.save()

    def _change_sampling(self, values: dict[str, object]) -> None:
        self._vm.change_sampling(**values)

    def _reset_sampling(self) -> None:
        self._vm.set_sampling(None)
