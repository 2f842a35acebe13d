"""Makes the correctness vectors of the embedded engine with `transformers`, or checks (`--check`) that those kept are what
it makes. See docs/internals/engine-correctness.md.

    python3 -m venv VENV && VENV/bin/pip install -r requirements.txt
    VENV/bin/python make.py [--check] [decoders|library|vision|templates|tokenizers] [NAME...]
"""

import argparse
import os
import shutil
import sys
import tempfile
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
KEPT = Path(__file__).resolve().parent.parent / "tests" / "vectors"


def decoders(check, names):
    from decoder_models import MODELS

    return made_decoders(check, names, MODELS, KEPT)


def library(check, names):
    from decoder_models import LIBRARY

    return made_decoders(check, names, LIBRARY, KEPT / "library")


def made_decoders(check, names, models, folder):
    import torch
    import transformers

    import decoders as making
    from decoder_models import SHOWN

    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    wrong = []
    for name, model in models.items():
        if names and name not in names:
            continue
        with tempfile.TemporaryDirectory() as scratch:
            scratch = Path(scratch)
            made = scratch / name
            expected = making.make(name, model, SHOWN.get(name, []), made, scratch / "published")
            bytes_kept = sum(file.stat().st_size for file in made.iterdir())
            print(
                f"{name:18} seed {expected['seed']:3}  margin {expected['smallest_margin']:.4f}  "
                f"spread {expected['logits_spread']:.2f}  different tokens {expected['different_tokens']:3}  "
                f"{bytes_kept // 1024} KiB",
                flush=True,
            )
            if check:
                kept = folder / name
                wrong += making.same(kept, made) if kept.exists() else [f"{name}: is not kept"]
            else:
                shutil.rmtree(folder / name, ignore_errors=True)
                shutil.copytree(made, folder / name)
    return wrong


def vision(check, names):
    import torch
    import transformers

    import decoders as comparing
    import vision as making

    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    wrong = []
    for name in making.MODELS:
        if names and name not in names:
            continue
        kept = KEPT / "library" / name
        with tempfile.TemporaryDirectory() as scratch:
            made = Path(scratch) / name
            expected = making.make(name, made, Path(scratch) / "published")
            print(f"{name:18} seed {expected['seed']:3}  margin {expected['smallest_margin']:.4f}", flush=True)
            if check:
                wrong += comparing.same(kept, made) if kept.exists() else [f"{name}: is not kept"]
            else:
                shutil.rmtree(kept, ignore_errors=True)
                shutil.copytree(made, kept)
    return wrong


def templates(check, _names):
    import templates as making

    file = KEPT / "chat" / "rendered.json"
    text = making.make(KEPT / "chat")
    if check:
        return [] if file.exists() and file.read_text() == text else ["chat/rendered.json: the text differs"]
    file.write_text(text)
    return []


def tokenizers(check, _names):
    import tokenization as making

    folder = KEPT / "tokenizers"
    if not check:
        making.make(folder, folder)
        return []
    with tempfile.TemporaryDirectory() as scratch:
        made = Path(scratch)
        making.make(made, folder)
        names = {path.name for path in [*made.iterdir(), *folder.iterdir()]}
        return [
            f"tokenizers/{name}: the bytes differ"
            for name in sorted(names)
            if not (folder / name).exists()
            or not (made / name).exists()
            or (folder / name).read_bytes() != (made / name).read_bytes()
        ]


PARTS = {"decoders": decoders, "library": library, "vision": vision, "templates": templates, "tokenizers": tokenizers}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare with what is kept, write nothing")
    parser.add_argument("part", nargs="?", choices=[*PARTS, "all"], default="all")
    parser.add_argument("names", nargs="*", help="only these")
    asked = parser.parse_args()
    wrong = []
    for part, run in PARTS.items():
        if asked.part in ("all", part):
            wrong += run(asked.check, asked.names)
    for line in wrong:
        print(line, file=sys.stderr)
    if asked.check:
        print("what is kept is not what is made" if wrong else "what is kept is what is made")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
