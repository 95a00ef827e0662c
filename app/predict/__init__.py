"""Forecasts as pure arithmetic: what a division of memory holds, and what it is likely to bring.

Knows neither Qt nor words nor the engine's process; called by view models and widgets.
"""
