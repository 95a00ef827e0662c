"""Write pictures of the Profiler: `python -m tests.app.profiler.pictures FOLDER`."""

import os
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

from PySide6.QtWidgets import QApplication

from app.services.machine_facts import GpuFacts, MachineFacts
from app.services.memory_modules import MemoryModules
from app.theme import theme
from app.viewmodels.profiler import ProfilerViewModel
from app.views.profiler import ProfilerView
from app.widgets.look import use
from tests.app.first_run.stubs import StubReader
from tests.app.performance.stubs import StubClient
from tests.app.pictures import grab
from tests.app.profiler.stubs import StubJobs
from tests.app.profiler.test_profiler import NOW, run_to_end

LOADED = GpuFacts("Card", "590", 8, 4, 4, 5, 16, 88, True, 0.99)


def main(folder: Path) -> None:
    """Write empty, good and troubled pages in several looks."""
    app = QApplication.instance() or QApplication(sys.argv[:1])
    folder.mkdir(parents=True, exist_ok=True)
    theme()
    shots = {
        "empty-dark": (("dark", 1.0, "en"), 1, (996, 712), 0, False),
        "good-dark": (("dark", 1.0, "en"), 1, (996, 860), 4, False),
        "wrong-light": (("light", 1.0, "en"), 1, (996, 1010), 9, True),
        "wrong-dark-zh": (("dark", 1.0, "zh_CN"), 2, (996, 960), 3, True),
    }
    for name, (look, ratio, size, count, is_wrong) in shots.items():
        use(*look)
        with tempfile.TemporaryDirectory() as home:
            jobs, reader = StubJobs(), StubReader()
            vm = ProfilerViewModel(jobs, StubClient(), Path(home), lambda: NOW + 60, reader)
            page = ProfilerView(vm)
            page.resize(*size)
            page.show()
            for i in range(count):
                scale = 1 - 0.12 * (i % 3) if is_wrong else 1 + i / 50
                begin = vm.run

                def run(mode, begin=begin, reader=reader):
                    begin(mode)
                    reader.known.emit(MachineFacts(LOADED, 1, 1, MemoryModules(1, 5600), 1, True))

                vm.run = run if is_wrong else begin
                run_to_end(jobs, vm, Path(home), scale=scale, at=NOW + 90_000 * i)
                vm.run = begin
            grab(page, ratio).save(str(folder / f"profiler-{name}.png"))
            page.close()
            page.deleteLater()
            app.processEvents()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
