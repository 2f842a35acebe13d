"""The same requests with `transformers` on the GPU, for benches/gpu/run: FOLDER PROMPT ANSWER COUNTS. Prints JSON, one object for
each number of simultaneous requests, with tokens per second. Never listens on a network."""

import json
import statistics
import sys
import time

import torch
from transformers import AutoModelForCausalLM

ROUNDS = 3


def seconds(model, prompts, tokens):
    torch.cuda.synchronize()
    began = time.perf_counter()
    with torch.inference_mode():
        model.generate(
            prompts,
            attention_mask=torch.ones_like(prompts),
            min_new_tokens=tokens,
            max_new_tokens=tokens,
            do_sample=False,
        )
    torch.cuda.synchronize()
    return time.perf_counter() - began


def main():
    folder, prompt, answer, counts = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    if not torch.cuda.is_available():
        sys.exit("torch sees no GPU")
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).to("cuda").eval()
    rows = []
    for count in map(int, counts.split(",")):
        prompts = torch.tensor([[3 + nth % 200 for nth in range(prompt)]] * count, device="cuda")
        seconds(model, prompts, 2)
        first, decoded = [], []
        for _ in range(ROUNDS):
            one = seconds(model, prompts, 1)
            all_tokens = seconds(model, prompts, answer + 1)
            first.append(count * prompt / one)
            decoded.append(count * answer / (all_tokens - one))
        rows.append({"count": count, "prompt": statistics.median(first), "answer": statistics.median(decoded)})
    print(json.dumps(rows))


main()
