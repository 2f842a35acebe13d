// The official `openai` package of npm against a pool. The environment is the one that checks.py tells of;
// each check prints one line, and the first that fails ends the script with 1.

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

// The packages lie where `.ci/clients` put them, not beside this file.
const modules = process.env.MODEL_POOL_NODE_MODULES ?? new URL("../../target/clients/node_modules", import.meta.url).pathname;
const require = createRequire(`${modules}/`);
const load = (name) => import(pathToFileURL(require.resolve(name)).href);
const { default: OpenAI, toFile } = await load("openai");
const { zodResponseFormat, zodFunction } = await load("openai/helpers/zod");
const { z } = await load("zod");

const env = process.env;
const url = (env.MODEL_POOL_URL ?? "http://127.0.0.1:8080").replace(/\/$/, "");
const apiKey = env.MODEL_POOL_KEY ?? "none";
const features = new Set((env.MODEL_POOL_FEATURES ?? "").split(/[ ,]+/));
const named = (name) => env[`MODEL_POOL_${name.toUpperCase()}`];
const model = "tiny-guide";
const messages = [{ role: "user", content: "What is keep-hot?" }];
const expected = "how long a model stays loaded";
const patience = 20_000;

// No retries: what fails the first time is to be seen.
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey, maxRetries: 0, timeout: patience });
const ask = (fields = {}, options) => client.chat.completions.create({ model, messages, temperature: 0, ...fields }, options);

const checks = [];
const check = (words, run, { feature, needs = [] } = {}) => checks.push({ words, run, feature, needs });

/** The error of this class that the call ends with. */
async function fails(kind, call) {
  try {
    const answer = await call();
    assert.fail(`expected ${kind.name}, came: ${JSON.stringify(answer)}`);
  } catch (error) {
    if (error instanceof kind) return error;
    throw error;
  }
}

async function until(what, so) {
  const began = Date.now();
  while (!(await so())) {
    assert(Date.now() - began < patience, `waited in vain for ${what}`);
    await new Promise((done) => setTimeout(done, 20));
  }
}

/** How many requests of a model are in flight or wait, as an administrator sees it. */
async function requestsOf(name) {
  const headers = { authorization: `Bearer ${env.MODEL_POOL_ADMIN_KEY}` };
  const answer = await fetch(`${url}/llm/admin/models?model=${encodeURIComponent(name)}`, { headers });
  const view = await answer.json();
  const one = view.models?.[0] ?? view;
  return one.replicas.reduce((sum, replica) => sum + replica.in_flight, 0) + one.waiting;
}

check("models are listed page by page, and each is found by its id", async () => {
  const ids = [];
  for await (const one of client.models.list()) ids.push(one.id);
  assert(ids.includes(model), ids.join());
  for (const id of ids) assert.equal((await client.models.retrieve(id)).id, id);
});

check("an id with a slash is found, and answers under its name", async () => {
  const name = named("slashed");
  assert.equal((await client.models.retrieve(name)).id, name);
  const answer = await ask({ model: name });
  assert.equal(answer.model, name);
  assert(answer.choices[0].message.content.includes(expected));
}, { needs: ["slashed"] });

check("a chat answers in one piece, with its usage and a request id", async () => {
  const { data, request_id, response } = await ask().withResponse();
  assert(data.choices[0].message.content.includes(expected), JSON.stringify(data));
  assert.equal(data.choices[0].finish_reason, "stop");
  assert.equal(data.usage.total_tokens, data.usage.prompt_tokens + data.usage.completion_tokens);
  assert(request_id && response.headers.get("content-type").startsWith("application/json"));
});

check("a stream says the same, with its usage where that is asked for", async () => {
  const whole = (await ask()).choices[0].message.content;
  let text = "", usage;
  for await (const chunk of await ask({ stream: true, stream_options: { include_usage: true } })) {
    text += chunk.choices[0]?.delta?.content ?? "";
    usage = chunk.usage ?? usage;
  }
  assert.equal(text, whole);
  assert(usage.completion_tokens > 0);
});

check("the package's own stream runner puts an answer together", async () => {
  let deltas = "";
  const runner = client.chat.completions.stream({ model, messages, temperature: 0, stream_options: { include_usage: true } });
  runner.on("content", (delta) => { deltas += delta; });
  const final = await runner.finalChatCompletion();
  assert.equal(final.choices[0].message.content, deltas);
  assert(deltas.includes(expected));
  assert((await runner.totalUsage()).total_tokens > 0);
});

check("n, stop, seed and limits are kept", async () => {
  assert.deepEqual((await ask({ n: 2 })).choices.map((choice) => choice.index), [0, 1]);
  assert(!(await ask({ stop: ["loaded"] })).choices[0].message.content.includes("loaded"));
  const cut = await ask({ max_completion_tokens: 3 });
  assert.equal(cut.choices[0].finish_reason, "length");
  assert.equal(cut.usage.completion_tokens, 3);
  const twice = await Promise.all([0, 1].map(() => ask({ temperature: 1.5, seed: 7, max_tokens: 20 })));
  assert.equal(twice[0].choices[0].message.content, twice[1].choices[0].message.content);
});

check("texts are completed, plain and streaming", async () => {
  const fields = { model, prompt: "Keep-hot is", max_tokens: 8, temperature: 0 };
  const whole = await client.completions.create(fields);
  let text = "";
  for await (const chunk of await client.completions.create({ ...fields, stream: true })) text += chunk.choices[0]?.text ?? "";
  assert.equal(text, whole.choices[0].text);
});

check("errors are the package's own classes, and say what is wrong", async () => {
  const unknown = await fails(OpenAI.NotFoundError, () => ask({ model: "tiny-giude" }));
  assert.equal(unknown.code, "model_not_found");
  assert(unknown.requestID && unknown.message.includes("tiny-guide"));
  const wrong = await fails(OpenAI.BadRequestError, () => ask({ temperature: 9 }));
  assert.equal(wrong.param, "temperature");
  const field = await fails(OpenAI.BadRequestError, () => ask({ no_such_field: 1 }));
  assert.equal(field.param, "no_such_field");
  const stranger = client.withOptions({ apiKey: "mp-no-such-key" });
  const refused = await fails(OpenAI.AuthenticationError, () => stranger.models.list());
  assert.equal(refused.code, "invalid_api_key");
  const nowhere = await fails(OpenAI.InternalServerError, () => client.embeddings.create({ model, input: "x" }));
  assert.equal(nowhere.status, 501);
});

check("a request that takes too long is the package's own timeout", async () => {
  const name = named("talker");
  await fails(OpenAI.APIConnectionTimeoutError, () => ask({ model: name }, { timeout: 400 }));
  await until("nothing to be left", async () => (await requestsOf(name)) === 0);
}, { needs: ["talker"] });

check("a stream that is left in the middle, or aborted, leaves nothing behind", async () => {
  const name = named("talker");
  let count = 0;
  for await (const _ of await ask({ model: name, stream: true })) if (++count === 5) break;
  await until("nothing to be left", async () => (await requestsOf(name)) === 0);
  const controller = new AbortController();
  setTimeout(() => controller.abort(), 200);
  await fails(OpenAI.APIUserAbortError, () => ask({ model: name }, { signal: controller.signal }));
  await until("nothing to be left", async () => (await requestsOf(name)) === 0);
}, { needs: ["talker"] });

check("a queue that is full is a RateLimitError", async () => {
  const name = named("stuck");
  const controller = new AbortController();
  const first = fails(OpenAI.APIUserAbortError, () => ask({ model: name }, { signal: controller.signal }));
  await until("the first to wait", async () => (await requestsOf(name)) === 1);
  const error = await fails(OpenAI.RateLimitError, () => ask({ model: name }));
  assert.equal(error.code, "queue_full");
  assert(Number(error.headers.get("retry-after")) > 0);
  controller.abort();
  await first;
  await until("nothing to be left", async () => (await requestsOf(name)) === 0);
}, { needs: ["stuck"] });

// What follows needs an engine that does more than complete texts.

check("log probabilities come with their alternatives", async () => {
  const { content } = (await ask({ logprobs: true, top_logprobs: 2, max_tokens: 3 })).choices[0].logprobs;
  assert.equal(content.length, 3);
  assert(content.every((token) => token.logprob <= 0 && token.top_logprobs.length === 2));
}, { feature: "logprobs" });

check("an answer follows a schema of zod and is parsed", async () => {
  const Fact = z.object({ known: z.boolean(), count: z.number().int() });
  const answer = await client.chat.completions.parse({
    model, messages, temperature: 0, max_tokens: 200, response_format: zodResponseFormat(Fact, "fact"),
  });
  assert.equal(typeof answer.choices[0].message.parsed.known, "boolean");
}, { feature: "json_schema" });

check("tools that the package runs are called with parsed arguments", async () => {
  const tool = zodFunction({ name: "keep_hot", parameters: z.object({ minutes: z.number().int() }) });
  const answer = await client.chat.completions.parse({
    model, messages, temperature: 0, max_tokens: 200, tools: [tool],
    tool_choice: { type: "function", function: { name: "keep_hot" } },
  });
  const [call] = answer.choices[0].message.tool_calls;
  assert(Number.isInteger(call.function.parsed_arguments.minutes), JSON.stringify(call));
}, { feature: "tools" });

check("responses are created, plain and as events", async () => {
  const answer = await client.responses.create({ model, input: messages[0].content, temperature: 0 });
  assert(answer.output_text.includes(expected), JSON.stringify(answer));
  const stream = client.responses.stream({ model, input: messages[0].content, temperature: 0 });
  let deltas = "";
  stream.on("response.output_text.delta", (event) => { deltas += event.delta; });
  assert.equal((await stream.finalResponse()).output_text, deltas);
}, { feature: "responses" });

check("a batch of requests runs, and its results can be read", async () => {
  const body = { model, messages, temperature: 0 };
  const line = { custom_id: "one", method: "POST", url: "/v1/chat/completions", body };
  const upload = await toFile(Buffer.from(JSON.stringify(line)), "lines.jsonl");
  const file = await client.files.create({ file: upload, purpose: "batch" });
  let batch = await client.batches.create({
    input_file_id: file.id, endpoint: "/v1/chat/completions", completion_window: "24h",
  });
  for (let nth = 0; nth < 100 && batch.status !== "completed"; nth += 1) {
    await new Promise((resume) => setTimeout(resume, 200));
    batch = await client.batches.retrieve(batch.id);
  }
  assert.equal(batch.request_counts.completed, 1, JSON.stringify(batch));
  const content = await client.files.content(batch.output_file_id);
  const result = JSON.parse(await content.text());
  assert.equal(result.response.status_code, 200, JSON.stringify(result));
}, { feature: "batches" });

let passed = 0;
for (const { words, run, feature, needs } of checks) {
  const lacking = needs.filter((name) => !named(name)).map((name) => `MODEL_POOL_${name.toUpperCase()}`);
  if (feature && !features.has(feature) && !features.has("all")) {
    console.log(`left out: ${words} (MODEL_POOL_FEATURES does not name ${feature})`);
  } else if (lacking.length > 0) {
    console.log(`left out: ${words} (${lacking.join(", ")} not set)`);
  } else {
    try {
      await run();
    } catch (error) {
      console.error(error);
      console.log(`FAILED: ${words}`);
      process.exit(1);
    }
    console.log(`ok: ${words}`);
    passed += 1;
  }
}
console.log(`${passed} passed, 0 failed`);
process.exit(0);
