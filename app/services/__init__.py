"""What the app does without a window: processes, files, meters. QtCore, QtNetwork at most."""
