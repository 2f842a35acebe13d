"""Generates with `transformers` for the bench: MODEL THREADS; requests and answers are lines of JSON.

It says when it is ready; for each request `{"prompts": [[ids]...], "tokens": n}` it runs one batch of prompts of one
length and says when the first and the last tokens were there, in seconds. It never listens on a network.
"""

import json
import sys
import time

import torch
from transformers import AutoModelForCausalLM, StoppingCriteria, StoppingCriteriaList


class Times(StoppingCriteria):
    """Is asked after every step, and never stops."""

    def __init__(self):
        self.at = []

    def __call__(self, ids, scores, **more):
        self.at.append(time.perf_counter())
        return torch.zeros(ids.shape[0], dtype=torch.bool)


def main():
    torch.set_num_threads(int(sys.argv[2]))
    model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype="auto")
    model.eval()
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        prompts = torch.tensor(request["prompts"])
        times = Times()
        began = time.perf_counter()
        with torch.inference_mode():
            ids = model.generate(
                prompts,
                attention_mask=torch.ones_like(prompts),
                min_new_tokens=request["tokens"],
                max_new_tokens=request["tokens"],
                do_sample=False,
                stopping_criteria=StoppingCriteriaList([times]),
            )
        tokens = (ids.shape[1] - prompts.shape[1]) * ids.shape[0]
        print(json.dumps({"first": times.at[0] - began, "last": times.at[-1] - began, "tokens": tokens}), flush=True)


main()
