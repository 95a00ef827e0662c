"""What the links were measured to do, for the device that a model is loaded onto."""

import time

import torch

from engine.checkpoint.ftw import FtwReader
from engine.memory.bandwidth import ProfileKey, Rates, profile_path, read_profile, stale_reason
from engine.settings import ENGINE_VERSION, EngineSettings
from engine.system import cpu_title
from kernels.device.base import Device


def measured_rates(
    reader: FtwReader, device: Device, settings: EngineSettings
) -> tuple[Rates | None, list[tuple[str, str]]]:
    """Return the measured rates, and a notice if they are stale. No measurement = no rates."""
    key = profile_key(reader.layout.encoding, reader.record_bytes, device)
    path = profile_path(settings.home.profiles, device.title, key.format)
    profile = read_profile(path)
    if profile is None:
        return None, []
    reason = stale_reason(profile, key, time.time())
    if reason:
        return profile.rates, [("profile_stale", f"{reason} Measure again on the Profiler page.")]
    return profile.rates, []


def profile_key(expert_format: str, record_bytes: int, device: Device) -> ProfileKey:
    """Return what a measurement of this process on this device is true for."""
    return ProfileKey(
        device=device.title,
        cpu=cpu_title(),
        format=expert_format,
        record_bytes=record_bytes,
        threads=torch.get_num_threads(),
        engine_version=ENGINE_VERSION,
    )
