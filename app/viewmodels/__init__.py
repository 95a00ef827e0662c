"""State of the pages as QObjects: QtCore only, testable without a window. Views bind to signals."""
