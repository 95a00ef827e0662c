"""One file per page, and the main window: they place widgets and bind them to view models.

No view imports another; each page takes its view model in the constructor. No logic lives here.
"""
