"""From a hub on loopback to a model in the library, with the real engine's jobs."""

import pytest

from app.services.downloads import Downloads
from app.services.engine_program import find_program
from app.services.job_runner import JobRunner
from app.services.model_library import ModelLibrary
from app.services.secrets import SecretStore
from app.services.settings import SettingsStore
from app.viewmodels.flows import FlowsViewModel
from engine.protocol.places import data_root
from tests.support.mock_hub import REPO, MockHub, serve, write_repo


@pytest.fixture
def hub(tmp_path):
    with serve(MockHub(write_repo(tmp_path / "hub"))) as made:
        yield made


def test_get_when_gated_and_cut_then_ready_in_the_library(qtbot, tmp_path, hub):
    """Token asked in place, a connection lost, then converted, verified, listed; source deleted."""
    hub.need_token, hub.is_gated = "hf_right", True
    root = data_root(str(tmp_path / "home"))
    settings = SettingsStore(root.settings_file)
    settings.set(hub_endpoint=hub.url, hub_proxy="direct")
    runner = JobRunner(find_program("", root), root.root / "jobs.json")
    library = ModelLibrary(root.models, tmp_path / "none")
    root.root.mkdir(parents=True, exist_ok=True)
    with qtbot.waitSignal(library.changed):
        library.refresh()
    flows = FlowsViewModel(runner, library, settings, SecretStore(lambda: None), Downloads())
    flows.get(REPO, "A model")
    qtbot.waitUntil(lambda: [f.state for f in flows.flows] == ["fail"], timeout=30_000)
    (flow,) = flows.flows
    assert flow.mend == "token"
    largest = max(hub.folder.glob("model-*.safetensors"), key=lambda p: p.stat().st_size)
    fault = hub.fault(largest.name)
    fault.cut_at, fault.cuts = largest.stat().st_size // 2, 1
    flows.give_token(flow.job.id, "hf_right")
    qtbot.waitUntil(lambda: [f.state for f in flows.flows] == ["ready"], timeout=60_000)
    assert hub.served[largest.name] == largest.stat().st_size
    with qtbot.waitSignal(library.changed):
        library.refresh()
    assert [(e.name, e.kind) for e in library.entries()] == [("tiny-moe", "ftw")]
    with qtbot.waitSignal(flows.downloads.removed):
        flows.free_source(flows.flows[0].job.id)
    assert not list((root.models / ".downloads").rglob("*.safetensors"))
    secret = b"hf_right"
    assert not [p for p in root.root.rglob("*") if p.is_file() and secret in p.read_bytes()]
    library.close()
