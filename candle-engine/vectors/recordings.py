"""Makes short recordings of a tone in the formats that the embedded engine decodes. Encoders differ in their bytes, so there is no
check. `opus.py` makes more of them in Opus. See docs/guides/speech.md.

    python3 -m venv VENV && VENV/bin/pip install av numpy soundfile
    VENV/bin/python recordings.py
"""

from fractions import Fraction
from pathlib import Path

import av
import numpy
import soundfile

KEPT = Path(__file__).resolve().parent.parent / "tests" / "vectors" / "recordings"
SECONDS, HERTZ = 0.8, 441

FILES = [
    ("tone.mp3", "libmp3lame", 22050, "fltp", 32000),
    ("tone.flac", "flac", 8000, "s16", None),
    ("tone.m4a", "aac", 44100, "fltp", 48000),
    ("lossless.m4a", "alac", 8000, "s16p", None),
    ("opus.webm", "libopus", 48000, "flt", 16000),
    ("tone.aiff", "pcm_s16be", 8000, "s16", None),
    ("adpcm.wav", "adpcm_ms", 22050, "s16", None),
    ("mulaw.wav", "pcm_mulaw", 8000, "s16", None),
    ("video.mp4", "aac", 44100, "fltp", 48000),
    ("silent.mp4", None, 0, "", None),
]


def write(path, codec, rate, form, bits):
    with av.open(str(path), "w") as file:
        picture = None
        if path.suffix == ".mp4":
            picture = file.add_stream("mpeg4", rate=5)
            picture.width = picture.height = 16
            picture.pix_fmt = "yuv420p"
        sound = None
        if codec:
            sound = file.add_stream(codec, rate=rate)
            sound.layout = "mono"
            sound.format = form
            if bits:
                sound.bit_rate = bits
        if picture:
            for index in range(4):
                frame = av.VideoFrame.from_ndarray(numpy.full((16, 16, 3), 40 * index, numpy.uint8), format="rgb24")
                for packet in picture.encode(frame):
                    file.mux(packet)
            for packet in picture.encode(None):
                file.mux(packet)
        if sound:
            wave = 0.5 * numpy.sin(2 * numpy.pi * HERTZ * numpy.arange(int(SECONDS * rate)) / rate)
            frame = av.AudioFrame.from_ndarray((wave * 32767).astype(numpy.int16)[None, :], format="s16", layout="mono")
            frame.sample_rate, frame.time_base, frame.pts = rate, Fraction(1, rate), 0
            size = sound.codec_context.frame_size or 1024
            shaped = av.AudioResampler(format=form, layout="mono", rate=rate, frame_size=size)
            for part in [*shaped.resample(frame), *shaped.resample(None)]:
                for packet in sound.encode(part):
                    file.mux(packet)
            for packet in sound.encode(None):
                file.mux(packet)


def vorbis():
    """Ogg by libsndfile, as PyAV has no encoder, and the same packets in WebM."""
    rate = 44100
    wave = 0.5 * numpy.sin(2 * numpy.pi * HERTZ * numpy.arange(int(SECONDS * rate)) / rate)
    soundfile.write(KEPT / "tone.ogg", wave, rate, format="OGG", subtype="VORBIS")
    with av.open(str(KEPT / "tone.ogg")) as given, av.open(str(KEPT / "tone.webm"), "w") as file:
        sound = file.add_stream_from_template(given.streams.audio[0])
        for packet in given.demux(given.streams.audio[0]):
            if packet.dts is not None:
                packet.stream = sound
                file.mux(packet)


def main():
    KEPT.mkdir(exist_ok=True)
    vorbis()
    for name, *how in FILES:
        try:
            write(KEPT / name, *how)
            print(f"{name:14} {(KEPT / name).stat().st_size}")
        except Exception as error:
            (KEPT / name).unlink(missing_ok=True)
            print(f"{name:14} {error!r}")


if __name__ == "__main__":
    main()
