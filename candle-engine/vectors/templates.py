"""Owns what chat templates must render to, by `apply_chat_template` of `transformers`. Never writes a template.

The templates in `tests/vectors/chat/*.jinja` are our own: each has the constructs and the format of the published one of its
family. `constructs.json` has single constructs of Hugging Face's dialect, `cases.json` the conversations.
"""

import datetime
import json

from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast
from transformers.utils import chat_template_utils

# The moment at which all templates are rendered.
NOW = datetime.datetime(2025, 3, 7, 14, 5, 9)
BOS, EOS = "<s>", "</s>"


class Clock(datetime.datetime):
    @classmethod
    def now(cls, *_):
        return NOW


def rendered(tokenizer, template, messages, tools, add_generation_prompt):
    """The text, or `null` where the template or the dialect refuses; an exception of the template itself with its message."""
    try:
        return tokenizer.apply_chat_template(
            messages,
            tools=tools,
            chat_template=template,
            add_generation_prompt=add_generation_prompt,
            tokenize=False,
        )
    except Exception as error:
        own = type(error).__name__ == "TemplateError"
        return {"refused": str(error) if own else None}


def make(chat):
    """All renderings of the templates and constructs in the folder `chat`, as the text of `rendered.json`."""
    chat_template_utils.datetime = Clock
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.BPE(vocab={BOS: 0, EOS: 1}, merges=[])), bos_token=BOS, eos_token=EOS
    )
    cases = json.loads((chat / "cases.json").read_text())
    conversations, tools = cases["conversations"], cases["tools"]
    found = {"now": int(NOW.replace(tzinfo=datetime.timezone.utc).timestamp()), "templates": {}, "constructs": []}
    for file in sorted(chat.glob("*.jinja")):
        # Editors end a file with a line feed; published templates mostly end without one, and Jinja drops it.
        template = file.read_text()
        of = found["templates"][file.stem] = {}
        for name, messages in conversations.items():
            of[name] = [
                rendered(tokenizer, template, messages, tools if with_tools else None, prompts)
                for with_tools in (False, True)
                for prompts in (False, True)
            ]
    for source in json.loads((chat / "constructs.json").read_text()):
        found["constructs"].append(rendered(tokenizer, source, conversations["calls and results"], None, True))
    return json.dumps(found, ensure_ascii=False, indent=0) + "\n"
