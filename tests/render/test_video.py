"""Videos hold every frame and the right length, and an interrupted one leaves the old file."""

import numpy as np
import pytest
from PIL import Image, ImageSequence

from actiongap.render.video import makes_mp4, mp4_bytes, write_video


def greys(count, height=48, width=64):
    for i in range(count):
        yield np.full((height, width, 3), 5 * i, np.uint8)


@pytest.mark.skipif(not makes_mp4(), reason="PyAV is not installed")
def test_mp4_holds_every_frame(tmp_path):
    import av

    write_video(greys(40, 49, 65), 25, mp4=tmp_path / "a.mp4")
    with av.open(str(tmp_path / "a.mp4")) as container:
        stream = container.streams.video[0]
        assert (stream.codec_context.name, stream.pix_fmt, stream.average_rate) == ("h264", "yuv420p", 25)
        frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
    assert len(frames) == 40
    assert frames[0].shape == (48, 64, 3)  # even sides
    assert [round(frame.mean()) for frame in frames] == pytest.approx([5 * i for i in range(40)], abs=4)
    assert mp4_bytes(greys(40, 49, 65), 25) == (tmp_path / "a.mp4").read_bytes()
    assert [file.name for file in tmp_path.iterdir()] == ["a.mp4"]


@pytest.mark.parametrize("fps", [15, 25, 30])
def test_gif_lasts_as_long_and_ends_with_the_last_frame(tmp_path, fps):
    red = np.full((48, 64, 3), (200, 0, 0), np.uint8)
    write_video([*greys(49), red], fps, gif=tmp_path / "a.gif")
    with Image.open(tmp_path / "a.gif") as album:
        shown = [(frame.info["duration"], frame.convert("RGB")) for frame in ImageSequence.Iterator(album)]
        assert len(shown) > 8
        assert sum(duration for duration, _ in shown) / 1000 == pytest.approx(50 / fps, abs=0.01)
        assert np.asarray(shown[-1][1])[20, 20].tolist() == pytest.approx([200, 0, 0], abs=8)
    assert [file.name for file in tmp_path.iterdir()] == ["a.gif"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_interrupted_videos_leave_what_was_there(tmp_path, error):
    old = tmp_path / "a.gif"
    old.write_bytes(b"old")

    def breaking():
        yield from greys(5)
        raise error

    places = {"gif": old, "mp4": tmp_path / "a.mp4"} if makes_mp4() else {"gif": old}
    with pytest.raises(error):
        write_video(breaking(), 25, **places)
    assert [file.name for file in tmp_path.iterdir()] == ["a.gif"]
    assert old.read_bytes() == b"old"
    with pytest.raises(ValueError, match="no frames"):
        write_video(iter(()), 25, **places)
    assert [file.name for file in tmp_path.iterdir()] == ["a.gif"]
