"""Writing frames as MP4 and GIF.

MP4 files are H.264 in 4:2:0, which every browser plays; writing them needs PyAV. GIF files need no extra package. They have a lower frame
rate and one palette of 255 colors for all frames, so pixels that do not change are not stored again.

Frames are uint8 arrays (height, width, 3). They are consumed one at a time, so a generator needs little memory. Both files are written in
one pass and appear together when the last frame is written.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from itertools import chain, pairwise
from pathlib import Path
from typing import BinaryIO

import numpy as np
from PIL import Image

from actiongap._files import writing
from actiongap._system import install

NO_MP4 = f"MP4 needs PyAV: {install('video')}"
"""The error if PyAV is missing."""
GIF_FPS = 6
"""Approximate frames per second of a GIF."""


def makes_mp4() -> bool:
    """Whether PyAV is installed.

    Examples
    --------
    >>> makes_mp4() in (True, False)
    True
    """
    try:
        return find_spec("av") is not None
    except (ImportError, ValueError):  # an import hook refuses it
        return False


def mp4_bytes(frames: Iterable[np.ndarray], fps: int) -> bytes:
    """The frames as the bytes of an MP4 file.

    Examples
    --------
    >>> grey = np.full((48, 64, 3), 128, np.uint8)
    >>> mp4_bytes([grey] * 5, 25)[4:8] if makes_mp4() else b"ftyp"
    b'ftyp'
    """
    file = io.BytesIO()
    _write_mp4(file, frames, fps)
    return file.getvalue()


def write_video(frames: Iterable[np.ndarray], fps: int, *, mp4: Path | None = None, gif: Path | None = None) -> None:
    """Write the frames to an MP4 file, a GIF file, or both. An interrupted call writes nothing.

    Examples
    --------
    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "greys.gif"
    >>> write_video((np.full((48, 64, 3), grey, np.uint8) for grey in range(0, 250, 10)), 25, gif=file)
    >>> with Image.open(file) as album:
    ...     album.n_frames  # every fourth, and the last
    7
    """
    with ExitStack() as files:
        kept: dict[int, Image.Image] = {}
        album = None if gif is None else files.enter_context(writing(gif))
        if album is not None:
            frames = _keep_some(frames, max(1, round(fps / GIF_FPS)), kept)
        if mp4 is not None:
            _write_mp4(files.enter_context(writing(mp4)), frames, fps)
        else:
            for _ in frames:
                pass
        if album is not None:
            _write_gif(album, kept, fps)


def _keep_some(frames: Iterable[np.ndarray], every: int, kept: dict[int, Image.Image]) -> Iterator[np.ndarray]:
    """Yield the frames unchanged; store every `every`-th and the last in `kept`, by index."""
    number, frame = -1, None
    for number, frame in enumerate(frames):
        if number % every == 0:
            kept[number] = Image.fromarray(frame)
        yield frame
    if frame is not None:
        kept[number] = Image.fromarray(frame)


def _write_mp4(file: BinaryIO, frames: Iterable[np.ndarray], fps: int) -> None:
    try:
        import av
    except ImportError:
        raise ValueError(NO_MP4) from None
    frames = iter(frames)
    first = next(frames, None)
    if first is None:
        raise ValueError("there are no frames to write: pass at least one")
    # 4:2:0 stores one color per 2 x 2 pixels, so both sides must be even.
    height, width = first.shape[0] // 2 * 2, first.shape[1] // 2 * 2
    with av.open(file, "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=fps, options={"crf": "23", "preset": "veryfast"})
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        for i, frame in enumerate(chain([first], frames)):
            picture = av.VideoFrame.from_ndarray(np.ascontiguousarray(frame[:height, :width]), format="rgb24")
            picture.pts = i
            container.mux(stream.encode(picture))
        container.mux(stream.encode())


def _write_gif(file: BinaryIO, kept: dict[int, Image.Image], fps: int) -> None:
    if not kept:
        raise ValueError("there are no frames to write: pass at least one")
    images = list(kept.values())
    width, height = images[0].size
    sample = [*images[:: max(1, len(images) // 12)], images[-1]]
    sheet = Image.new("RGB", (width, height * len(sample)))
    for i, image in enumerate(sample):
        sheet.paste(image, (0, i * height))
    # An octree keeps rare colors, such as those of a thin red line; a median cut loses them.
    palette = sheet.quantize(255, method=Image.Quantize.FASTOCTREE)
    first, *others = [image.quantize(palette=palette, dither=Image.Dither.NONE) for image in images]
    # GIF durations are multiples of 10 ms.
    times = [10 * round(100 * number / fps) for number in (*kept, max(kept) + 1)]
    durations = [end - start for start, end in pairwise(times)]
    first.save(file, "GIF", save_all=True, append_images=others, duration=durations, loop=0)
