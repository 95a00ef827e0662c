"""Charts: painted ones for live figures, pyqtgraph for curves that a person zooms.

The only package of the app that may import pyqtgraph (and with it numpy), and it does so only when
such a chart is shown. Knows numbers and roles of the theme; no engine, no view model.
"""
