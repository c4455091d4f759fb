"""Pictures of any mode become the RGB that a person would see."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.train.data.raw_files import noise, picture
from train.data.sources import images
from train.data.sources.images import decode_image, decode_images
from train.errors import DataError


def saved(image: Image.Image, kind: str = "png", **options: object) -> bytes:
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


RED = Image.new("RGB", (6, 4), (200, 30, 10))


@pytest.mark.parametrize(
    ("content", "expected", "tolerance"),
    [
        (saved(RED), (200, 30, 10), 0),
        (saved(RED, "jpeg", quality=95), (200, 30, 10), 3),
        (saved(RED, "gif"), (200, 30, 10), 0),
        (saved(RED.convert("CMYK"), "jpeg", quality=95), (200, 30, 10), 4),
        (saved(Image.new("RGBA", (6, 4), (200, 30, 10, 128))), (200, 30, 10), 0),
        (saved(Image.new("L", (6, 4), 77)), (77, 77, 77), 0),
        (saved(Image.new("1", (6, 4), 1)), (255, 255, 255), 0),
        (saved(Image.new("I;16", (6, 4), 257 * 100)), (100, 100, 100), 0),
        (saved(Image.new("I", (6, 4), 257 * 100), "tiff"), (100, 100, 100), 0),
        (saved(RED, "webp", lossless=True), (200, 30, 10), 0),
    ],
)
def test_modes(content: bytes, expected: tuple[int, int, int], tolerance: int) -> None:
    image, complete = decode_image(content)
    assert complete
    assert (image.mode, image.size) == ("RGB", (6, 4))
    assert np.abs(np.asarray(image, int) - expected).max() <= tolerance


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation(orientation: int) -> None:
    """The stored pixels are turned back to the upright picture (EXIF 2.3, tag 0x0112)."""
    upright = np.frombuffer(noise(5 * 3 * 3), np.uint8).reshape(5, 3, 3)
    store = {
        1: lambda a: a, 2: lambda a: a[:, ::-1], 3: lambda a: a[::-1, ::-1], 4: lambda a: a[::-1],
        5: lambda a: a.transpose(1, 0, 2), 6: lambda a: np.rot90(a, 1),
        7: lambda a: a[::-1, ::-1].transpose(1, 0, 2), 8: lambda a: np.rot90(a, -1),
    }  # fmt: skip
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored = Image.fromarray(np.ascontiguousarray(store[orientation](upright)))
    found, _ = decode_image(saved(stored, "png", exif=exif))
    assert np.array_equal(np.asarray(found), upright)


def exif_of(*tags: tuple[int, int, bytes]) -> bytes:
    """A block with the orientation 6 and further tags: number, type, value."""
    block = b"Exif\0\0II*\0\x08\0\0\0" + struct.pack("<HHHI4s", 1 + len(tags), 274, 3, 1, b"\6")
    return block + b"".join(struct.pack("<HHI4s", *tag[:2], 1, tag[2]) for tag in tags) + bytes(4)


def chunk(kind: bytes, data: bytes) -> bytes:
    crc = zlib.crc32(kind + data)
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", crc)


PLAIN = Image.frombytes("RGB", (3, 3), noise(27))
PNG = saved(PLAIN)


@pytest.mark.parametrize(
    ("exif", "turned"),
    [
        # what Pillow cannot write again is no reason not to turn the picture
        (exif_of((0x0110, 11, b"\0\0\x80\x3f")), True),
        (b"Exif\0\0garbage garbage", False),
    ],
)
def test_an_exif_block_that_pillow_cannot_rewrite(exif: bytes, turned: bool) -> None:
    """Seen: it refused a whole folder, though its pixels decode."""
    image, complete = decode_image(saved(PLAIN, "webp", lossless=True, exif=exif))
    expected = PLAIN.transpose(Image.Transpose.ROTATE_270) if turned else PLAIN
    assert np.array_equal(np.asarray(image), np.asarray(expected))
    assert complete or not turned


@pytest.mark.parametrize(
    ("kind", "data"),
    [(b"zTXt", b"k\0\0" + zlib.compress(bytes(3 << 20))), (b"pHYs", b""), (b"gAMA", b""),
     (b"iCCP", b"k\0\7"), (b"acTL", b"1"), (b"eXIf", b"garbage")],
    ids=lambda value: value[:4].decode(),
)  # fmt: skip
@pytest.mark.parametrize("at", [33, -12])  # behind the header, before the end
def test_metadata_that_no_pixel_needs(tmp_path: Path, capsys, kind: bytes, data: bytes, at: int):
    path = tmp_path / "a.png"
    path.write_bytes(PNG[:at] + chunk(kind, data) + PNG[at:])
    paths = [path, picture(tmp_path / "b.png", (3, 3))]
    assert np.array_equal(decode_images(paths, 3)[0], np.asarray(PLAIN))
    said = capsys.readouterr().err
    assert said == "" or f"1 images have metadata that cannot be read, e.g. {path}" in said
    path.write_bytes(PNG[:33] + chunk(kind, data) + PNG[33:-40])
    with pytest.raises(DataError, match="1 of 1 images cannot be decoded"):
        decode_images([path], 3)


def test_deep_images_that_become_almost_black_are_counted(tmp_path: Path, capsys) -> None:
    """12 bits in a PNG of 16, grey and in colour, and 0 to 255 in a TIFF of 32."""
    rows = b"\0" + struct.pack(">12H", *[4095] * 12)
    header = struct.pack(">2I5B", 4, 4, 16, 2, 0, 0, 0)
    parts = (b"IHDR", header), (b"IDAT", zlib.compress(rows * 4)), (b"IEND", b"")
    (tmp_path / "colour.png").write_bytes(PNG[:8] + b"".join(chunk(*part) for part in parts))
    Image.new("I;16", (4, 4), 4095).save(tmp_path / "a.png")
    Image.new("I", (4, 4), 255).save(tmp_path / "b.tif")
    Image.new("I;16", (4, 4), 8192).save(tmp_path / "c.png")
    Image.new("L", (4, 4), 3).save(tmp_path / "d.png")
    decode_images(sorted(tmp_path.iterdir()), 4)
    said = capsys.readouterr().err
    assert "3 images of 16 bits or more" in said and "a.png" in said and "65,535" in said


def test_floating_point_is_refused() -> None:
    with pytest.raises(ValueError, match="no known range"):
        decode_image(saved(Image.new("F", (6, 4), 0.5), "tiff"))


def test_resizing_is_antialiased_and_whole(tmp_path: Path) -> None:
    """Black and white stripes a pixel wide shrink to grey, not to a choice of them."""

    def resized(pixels: np.ndarray, side: int) -> np.ndarray:
        Image.fromarray(pixels).save(tmp_path / "a.png")
        return decode_images([tmp_path / "a.png"], side)[0]

    stripes = np.zeros((64, 128, 3), np.uint8)
    stripes[:, ::2] = 255
    small = resized(stripes, 16)
    assert small.shape == (16, 16, 3)
    assert np.abs(small[:, 2:-2].astype(int) - 127).max() <= 3
    halves = np.zeros((40, 20, 3), np.uint8)
    halves[20:] = 255
    squeezed = resized(halves, 10)
    assert squeezed[0].max() == 0  # nothing was cropped: both ends are there
    assert squeezed[-1].min() == 255


@pytest.mark.parametrize("large", [0, 1 << 30])  # with threads, without
def test_order_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, large: int) -> None:
    monkeypatch.setattr(images, "_LARGE", large)
    monkeypatch.setattr(images, "_PART", 3)
    paths = [picture(tmp_path / f"{i}.png", (8, 8), seed=i) for i in range(20)]
    found = decode_images(paths, 8)
    for path, image in zip(paths, found, strict=True):
        assert np.array_equal(image, np.asarray(Image.open(path)))


def test_damaged_images_are_listed_up_to_ten(tmp_path: Path) -> None:
    paths = [picture(tmp_path / f"{i:02d}.png", (8, 8), seed=i) for i in range(15)]
    whole = paths[0].read_bytes()
    for i, path in enumerate(paths[1:13], 1):
        path.write_bytes([whole[: 10 * i], b"", b"text", whole[:-60]][i % 4])
    with pytest.raises(DataError) as caught:
        decode_images(paths, 8)
    text = str(caught.value)
    assert text.startswith("12 of 15 images cannot be decoded:") and "and 2 more" in text
    assert "01.png" in text and "10.png" in text and "11.png" not in text


def test_more_memory_than_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or than limits leave. Before, those of control groups did not count."""
    path = picture(tmp_path / "a.png")
    monkeypatch.setattr(images, "free_memory", lambda: 2 * 8 * 8 * 3)
    assert len(decode_images([path] * 2, 8)) == 2
    with pytest.raises(DataError, match=r"need \d+\.\d GB of memory .* smaller --image-size"):
        decode_images([path] * 3, 8)
