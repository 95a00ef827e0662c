"""Make the application icon's PNG and ICO files from its SVG: `python installers/common/icons.py`.

Run by hand after the SVG changed; the results are kept in the repository, because a build must not
need a drawing program.
"""

import os
import struct
from pathlib import Path

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

from PySide6.QtCore import QBuffer, QIODevice, QRectF
from PySide6.QtGui import QColor, QGuiApplication, QImage, QPainter
from PySide6.QtSvg import QSvgRenderer

FOLDER = Path(__file__).resolve().parents[2] / "resources" / "icons" / "app"
SIDE = FOLDER.parents[2] / "installers" / "windows" / "side.bmp"
SIDE_SIZE, SIDE_COLOUR = (164, 314), "#101214"
PNG_SIZES = (16, 24, 32, 48, 64, 128, 256, 512)
ICO_SIZES = (16, 24, 32, 48, 64, 256)
AS_PNG = 256  # smaller ones as bitmaps: the setup compiler and old shells read nothing else


def draw(renderer: QSvgRenderer, size: int) -> QImage:
    """Return the picture at `size` px."""
    image = QImage(size, size, QImage.Format.Format_ARGB32)
    image.fill(0)
    painter = QPainter(image)
    renderer.render(painter)
    painter.end()
    return image


def png(image: QImage) -> bytes:
    """Return the picture as PNG."""
    buffer = QBuffer()
    buffer.open(QIODevice.OpenModeFlag.WriteOnly)
    image.save(buffer, "PNG")
    return bytes(buffer.data().data())


def bitmap(image: QImage) -> bytes:
    """Return the picture as the 32-bit bitmap of an icon: header, rows from below, empty mask."""
    size = image.width()
    rows = b"".join(bytes(image.constScanLine(y)[: size * 4]) for y in reversed(range(size)))
    mask = bytes((size + 31) // 32 * 4 * size)
    head = struct.pack("<IiiHHIIiiII", 40, size, size * 2, 1, 32, 0, len(rows + mask), 0, 0, 0, 0)
    return head + rows + mask


def ico(images: list[QImage]) -> bytes:
    """Return the pictures as one ICO file."""
    bodies = [png(image) if image.width() >= AS_PNG else bitmap(image) for image in images]
    head, offset = struct.pack("<HHH", 0, 1, len(images)), 6 + 16 * len(images)
    for image, body in zip(images, bodies, strict=True):
        side = image.width() % 256
        head += struct.pack("<BBBBHHII", side, side, 0, 0, 1, 32, len(body), offset)
        offset += len(body)
    return head + b"".join(bodies)


def side(renderer: QSvgRenderer) -> QImage:
    """Return the picture beside the setup's last page."""
    image = QImage(*SIDE_SIZE, QImage.Format.Format_RGB888)
    image.fill(QColor(SIDE_COLOUR))
    painter = QPainter(image)
    renderer.render(painter, QRectF(26, 40, 112, 112))
    painter.end()
    return image


def main() -> None:
    """Write all files."""
    app = QGuiApplication([])
    renderer = QSvgRenderer(str(FOLDER / "freetoken.svg"))
    images = {size: draw(renderer, size) for size in sorted({*PNG_SIZES, *ICO_SIZES})}
    for size in PNG_SIZES:
        (FOLDER / f"freetoken-{size}.png").write_bytes(png(images[size]))
    (FOLDER / "freetoken.ico").write_bytes(ico([images[size] for size in ICO_SIZES]))
    side(renderer).save(str(SIDE))
    app.quit()


if __name__ == "__main__":
    main()
