"""Makes short recordings in Opus and the samples that libopus decodes from them. Encoders differ in their bytes, so there is no
check. See docs/guides/speech.md.

    python3 -m venv VENV && VENV/bin/pip install av numpy safetensors
    VENV/bin/python opus.py

The recordings cover SILK, CELT and their hybrid, mono, stereo and surround, frames of 2.5 to 60 ms, and Ogg, MP4 and WebM. Browsers
record WebM as a stream: a segment and clusters of unknown size, and no duration, cues and seek head. `stream` writes that form.
"""

import json
import struct
from fractions import Fraction
from pathlib import Path

import av
import numpy
from safetensors.numpy import save_file

KEPT = Path(__file__).resolve().parent.parent / "tests" / "vectors" / "opus"
RATE = 48000
SECONDS = 0.42
# Samples between two that are kept.
STRIDE = 11


def speech(channels, seed, seconds=SECONDS):
    """Harmonics of a voice with two formants that move, and noise between them; interleaved."""
    random = numpy.random.default_rng(seed)
    time = numpy.arange(int(RATE * seconds)) / RATE
    pitch = 120 + 40 * numpy.sin(2 * numpy.pi * 1.3 * time + seed)
    phase = 2 * numpy.pi * numpy.cumsum(pitch) / RATE
    formants = [(500 + 250 * numpy.sin(2 * numpy.pi * 2.1 * time), 120), (1500 + 600 * numpy.sin(2 * numpy.pi * 1.7 * time), 200)]
    voice = numpy.zeros(len(time))
    for number in range(1, 40):
        height = 0.01 + sum(1 / (1 + ((number * pitch - at) / width) ** 2) for at, width in formants)
        voice += height * numpy.sin(number * phase + number)
    loud = numpy.clip(2 * numpy.sin(2 * numpy.pi * 3 * time), 0, 1)
    wave = 0.12 * voice * loud + 0.08 * random.standard_normal(len(time)) * (1 - loud)
    places = [numpy.roll(wave, 33 * channel) * (1 - 0.1 * channel) for channel in range(channels)]
    return numpy.clip(numpy.stack(places, 1), -1, 1).astype(numpy.float32).reshape(-1)


def layout(channels):
    return {1: "mono", 2: "stereo", 6: "5.1"}[channels]


def encoder(target, channels, bits, application, frame):
    options = {"application": application, "frame_duration": str(frame)}
    sound = target.add_stream("libopus", rate=RATE, options=options) if target else av.CodecContext.create("libopus", "w")
    sound.sample_rate, sound.layout, sound.format, sound.bit_rate = RATE, layout(channels), "flt", bits
    if not target:
        sound.time_base, sound.options = Fraction(1, RATE), options
        sound.open()
    return sound


def encoded(sound, wave, channels):
    frame = av.AudioFrame.from_ndarray(wave[None, :], format="flt", layout=layout(channels))
    frame.sample_rate, frame.time_base, frame.pts = RATE, Fraction(1, RATE), 0
    context = getattr(sound, "codec_context", sound)
    context.open(strict=False)
    shaped = av.AudioResampler(format="flt", layout=layout(channels), rate=RATE, frame_size=context.frame_size)
    for part in [*shaped.resample(frame), *shaped.resample(None)]:
        yield from sound.encode(part)
    yield from sound.encode(None)


def muxed(path, channels, bits, application, frame, seed):
    # Several pages of Ogg, but for one file.
    options = {"page_duration": "100000"} if path.suffix == ".ogg" and "60" not in path.name else {}
    with av.open(str(path), "w", options=options) as file:
        sound = encoder(file, channels, bits, application, frame)
        for packet in encoded(sound, speech(channels, seed), channels):
            file.mux(packet)


def element(name, body):
    if body is None:
        return name + b"\x01" + b"\xff" * 7
    return name + (0x10000000 | len(body)).to_bytes(4, "big") + body


def number(value):
    return value.to_bytes(max(1, (value.bit_length() + 7) // 8), "big")


def stream(path, channels, packets, frame, skip=0, blocks=8):
    """WebM as MediaRecorder of Chromium writes it, with a cluster for each `blocks` packets."""
    head = b"OpusHead" + struct.pack("<BBHIhB", 1, channels, skip, RATE, 0, 0)
    audio = element(b"\xb5", struct.pack(">d", RATE)) + element(b"\x9f", number(channels)) + element(b"\x62\x64", number(32))
    track = (element(b"\xd7", number(1)) + element(b"\x73\xc5", number(0x1234567)) + element(b"\x83", number(2))
             + element(b"\x86", b"A_OPUS") + element(b"\x63\xa2", head) + element(b"\xe1", audio))
    ebml = b"".join(element(bytes.fromhex(name), value) for name, value in [
        ("4286", b"\1"), ("42f7", b"\1"), ("42f2", b"\4"), ("42f3", b"\x08"), ("4282", b"webm"), ("4287", b"\4"), ("4285", b"\2"),
    ])
    info = element(b"\x2a\xd7\xb1", number(1000000)) + element(b"\x4d\x80", b"Chrome") + element(b"\x57\x41", b"Chrome")
    made = element(b"\x1a\x45\xdf\xa3", ebml) + element(b"\x18\x53\x80\x67", None)
    made += element(b"\x15\x49\xa9\x66", info) + element(b"\x16\x54\xae\x6b", element(b"\xae", track))
    for first in range(0, len(packets), blocks):
        made += element(b"\x1f\x43\xb6\x75", None) + element(b"\xe7", number(int(first * frame)))
        for index, packet in enumerate(packets[first:first + blocks]):
            made += element(b"\xa3", b"\x81" + struct.pack(">h", int(index * frame)) + b"\x80" + packet)
    path.write_bytes(made)


def packets(channels, bits, application, frame, seed, seconds=SECONDS):
    sound = encoder(None, channels, bits, application, frame)
    return [bytes(packet) for packet in encoded(sound, speech(channels, seed, seconds), channels)]


def reference(path):
    """The mean of the channels that libopus decodes, and the modes of the packets."""
    with av.open(str(path)) as file:
        source = file.streams.audio[0]
        context = av.CodecContext.create("libopus", "r")
        context.extradata = source.codec_context.extradata
        context.sample_rate, context.layout = RATE, source.codec_context.layout
        context.options = {"request_sample_fmt": "flt"}
        channels, parts, modes = source.codec_context.layout.nb_channels, [], set()
        for packet in file.demux(source):
            if packet.size:
                config = bytes(packet)[0] >> 3
                modes.add("silk" if config < 12 else "hybrid" if config < 16 else "celt")
            for frame in context.decode(packet if packet.size else None):
                assert frame.format.name == "flt", frame.format.name
                parts.append(frame.to_ndarray().reshape(-1, channels).mean(1))
    return numpy.concatenate(parts).astype(numpy.float32), sorted(modes)


# Name, channels, bits per second, application, frame in ms.
FILES = [
    ("silk-10.ogg", 1, 9000, "voip", 10),
    ("silk-20-stereo.ogg", 2, 9600, "voip", 20),
    ("silk-40.mp4", 1, 10000, "voip", 40),
    ("silk-60.ogg", 1, 8000, "voip", 60),
    ("hybrid-10.ogg", 1, 26000, "voip", 10),
    ("hybrid-20-stereo.webm", 2, 36000, "voip", 20),
    ("celt-2.5.ogg", 1, 40000, "lowdelay", 2.5),
    ("celt-5-stereo.ogg", 2, 64000, "lowdelay", 5),
    ("celt-20.mp4", 1, 64000, "audio", 20),
    ("surround.ogg", 6, 128000, "audio", 20),
]


def main():
    KEPT.mkdir(exist_ok=True)
    for seed, (name, *how) in enumerate(FILES):
        muxed(KEPT / name, *how, seed)
    stream(KEPT / "stream.webm", 1, packets(1, 28000, "voip", 60, 20), 60, blocks=3)
    # Changes of the mode, the channels and the length of frames at each of these places.
    mixed = []
    for seed, how in enumerate([(1, 9000, "voip", 20), (2, 40000, "voip", 20), (2, 64000, "lowdelay", 20), (1, 14000, "voip", 20),
                                (1, 64000, "audio", 20), (1, 26000, "voip", 20), (2, 16000, "voip", 20)]):
        mixed += packets(*how, 30 + seed, 0.16)[1:]
    stream(KEPT / "changes.webm", 2, mixed, 20, skip=312)
    samples, facts = {}, {}
    for path in sorted(KEPT.iterdir()):
        if path.suffix in (".ogg", ".mp4", ".webm"):
            decoded, modes = reference(path)
            samples[path.name] = decoded[::STRIDE].copy()
            facts[path.name] = {"samples": len(decoded), "modes": modes}
            print(f"{path.name:24} {path.stat().st_size:6} bytes  {len(decoded):6} samples  {' '.join(modes)}")
    save_file(samples, KEPT / "expected.safetensors")
    (KEPT / "expected.json").write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
