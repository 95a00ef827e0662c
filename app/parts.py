"""Services and view models of the app, made in order and joined; nothing is started yet.

Called by `app.main`, which puts pages and a window on them.
"""

import logging
from dataclasses import dataclass
from functools import partial

from app.services.catalog import read_catalog
from app.services.chat_store import ChatStore
from app.services.device_choice import card_key, choose_device
from app.services.downloads import Downloads
from app.services.engine_client import EngineClient
from app.services.engine_process import EngineProcess
from app.services.engine_program import EngineProgram, find_program
from app.services.gpu_meter import GpuMeter
from app.services.job_runner import JobRunner
from app.services.log_ring import ChildLog, LogRing
from app.services.machine_facts import MachineReader
from app.services.model_library import ModelLibrary
from app.services.model_store import ModelStore
from app.services.power import WakeWatch
from app.services.presence import PresenceWatch
from app.services.presets import PresetStore
from app.services.remote_client import RemoteClient
from app.services.remote_switch import TalkClient
from app.services.runtime_build import fitting_locks, has_nvidia_driver, read_build
from app.services.secrets import SecretStore
from app.services.settings import Environment, Settings, SettingsStore, chosen_folder
from app.services.updates import UpdateCheck
from app.viewmodels.about import AboutViewModel
from app.viewmodels.chat import ChatViewModel
from app.viewmodels.device import DeviceViewModel
from app.viewmodels.diagnostics import DiagnosticSources, DiagnosticsViewModel
from app.viewmodels.discover import DiscoverViewModel
from app.viewmodels.discover_hub import HubSearch
from app.viewmodels.first_run import FirstRunViewModel, Sources
from app.viewmodels.flows import FlowsViewModel
from app.viewmodels.jobs import JobsViewModel
from app.viewmodels.logs import LogsViewModel
from app.viewmodels.models import ModelsViewModel
from app.viewmodels.models_idle import IdleUnloader
from app.viewmodels.models_move import MoveViewModel
from app.viewmodels.performance import PerformanceViewModel
from app.viewmodels.profiler import ProfilerViewModel
from app.viewmodels.remote import RemoteViewModel
from app.viewmodels.runtime import RuntimeViewModel
from app.viewmodels.server import ServerViewModel
from app.viewmodels.session import SessionViewModel
from app.viewmodels.session_words import kernel_facts
from app.viewmodels.settings import APP_VERSION, SettingsViewModel
from app.viewmodels.yielding import YieldingViewModel
from engine.protocol.places import resources_dir

_log = logging.getLogger("app")


@dataclass(frozen=True, slots=True)
class Services:
    """What works without a window."""

    environment: Environment
    ring: LogRing
    files: tuple[ChildLog, ...]
    settings: SettingsStore
    client: EngineClient
    jobs: JobRunner
    library: ModelLibrary
    meter: GpuMeter
    presence: PresenceWatch
    machine: MachineReader
    under_load: MachineReader
    wake: WakeWatch
    chats: ChatStore


@dataclass(frozen=True, slots=True)
class ViewModels:
    """State of window and pages."""

    session: SessionViewModel
    chat: ChatViewModel
    models: ModelsViewModel
    discover: DiscoverViewModel
    jobs: JobsViewModel
    move: MoveViewModel
    idle: IdleUnloader
    remote: RemoteViewModel
    performance: PerformanceViewModel
    yielding: YieldingViewModel
    profiler: ProfilerViewModel
    server: ServerViewModel
    logs: LogsViewModel
    settings: SettingsViewModel
    device: DeviceViewModel
    runtime: RuntimeViewModel
    about: AboutViewModel
    first_run: FirstRunViewModel


def program_of(environment: Environment, settings: Settings) -> EngineProgram:
    """Return the engine that environment and settings ask for."""
    override = environment.engine_program or settings.engine_program
    return find_program(override, environment.root, settings.engine_threads)


def make_services(environment: Environment, ring: LogRing) -> Services:
    """Build the services; nothing is started yet."""
    root = environment.root
    settings = SettingsStore(root.settings_file)
    program = program_of(environment, settings.value)
    engine_log = ChildLog(ring, "engine", root.logs / "engine.log")
    job_log = ChildLog(ring, "job", root.logs / "jobs.log")
    _log.info("engine program: %s (%s)", program.path, program.origin)
    return Services(
        environment=environment,
        ring=ring,
        files=(engine_log, job_log),
        settings=settings,
        client=EngineClient(EngineProcess(program, engine_log), engine_log),
        jobs=JobRunner(program, root.root / "jobs.json", job_log),
        library=ModelLibrary(
            root.models, resources_dir() / "models", chosen_folder(settings.value)
        ),
        meter=GpuMeter(),
        presence=PresenceWatch(),
        machine=MachineReader(),
        under_load=MachineReader(),
        wake=WakeWatch(),
        chats=ChatStore(root.chats),
    )


def make_view_models(s: Services) -> ViewModels:
    """Build the view models on the services."""
    s.client.ready.connect(lambda _: _follow_next(s))
    s.client.loaded.connect(lambda event: _follow(event.model.devices, s))
    root, build = s.environment.root, read_build()
    session = SessionViewModel(s.client, s.library, s.jobs, s.settings, s.meter, s.wake)
    secrets = SecretStore()
    flows = FlowsViewModel(s.jobs, s.library, s.settings, secrets, Downloads())
    remote = RemoteClient()
    talk = TalkClient(s.client, remote)
    profiler = ProfilerViewModel(s.jobs, s.client, root.profiles, reader=s.under_load)
    catalog = read_catalog()
    return ViewModels(
        session=session,
        chat=ChatViewModel(
            s.chats, talk, s.settings, presets=PresetStore(root.root / "presets.json")
        ),
        models=ModelsViewModel(s.library, s.jobs, s.client, session, s.meter),
        discover=DiscoverViewModel(
            catalog,
            s.library,
            flows,
            root.profiles,
            s.meter,
            HubSearch(s.jobs, secrets),
        ),
        jobs=JobsViewModel(s.jobs, flows),
        move=MoveViewModel(s.jobs, s.library, s.settings, s.client, ModelStore()),
        idle=IdleUnloader(s.client, s.settings, session),
        remote=RemoteViewModel(
            s.settings, remote, talk, lambda host: SecretStore(entry=f"remote engine {host}")
        ),
        performance=PerformanceViewModel(s.client, root.profiles, settings=s.settings),
        yielding=YieldingViewModel(s.client, s.settings, s.presence),
        profiler=profiler,
        server=ServerViewModel(),
        logs=LogsViewModel(s.ring, root.logs, _diagnostics(s, session)),
        settings=SettingsViewModel(
            s.settings, root, session.engine_facts, partial(kernel_facts, s.client)
        ),
        device=DeviceViewModel(s.client, s.settings),
        runtime=RuntimeViewModel(
            s.jobs, s.settings, root, build, fitting_locks(), has_nvidia_driver()
        ),
        about=AboutViewModel(
            s.settings, UpdateCheck(build.update_url, build.update_key), APP_VERSION, root
        ),
        first_run=FirstRunViewModel(
            Sources(s.machine, s.client, session, profiler, flows, s.library, root.profiles),
            catalog,
        ),
    )


def _diagnostics(s: Services, session: SessionViewModel) -> DiagnosticsViewModel:
    """Build the report of trouble."""
    return DiagnosticsViewModel(
        DiagnosticSources(
            APP_VERSION,
            s.environment.root,
            s.client,
            s.settings,
            s.jobs,
            s.ring,
            s.machine,
            problem=lambda: session.problem,
        )
    )


def _follow_next(s: Services) -> None:
    """Let them watch the card that the next model will run on: the first one may be hidden."""
    _follow((choose_device(s.client.devices, s.settings.value.device),), s)


def _follow(devices: tuple[str, ...], s: Services) -> None:
    """Let meters, facts and auto-yield watch the card that the model runs on."""
    card = card_key(devices, s.client.devices)
    s.meter.follow(card)
    s.presence.follow(card)
    s.machine.follow(card)
    s.under_load.follow(card)
