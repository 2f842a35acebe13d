// The official `ollama` package of npm against a pool with `compat.ollama`. The environment is the one that checks.py
// tells of; each check prints one line, and the first that fails ends the script with 1.

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

// The packages lie where `.ci/clients` put them, not beside this file.
const modules = process.env.MODEL_POOL_NODE_MODULES ?? new URL("../../target/clients/node_modules", import.meta.url).pathname;
const require = createRequire(`${modules}/`);
const { Ollama } = await import(pathToFileURL(require.resolve("ollama")).href);

const env = process.env;
const host = (env.MODEL_POOL_URL ?? "http://127.0.0.1:8080").replace(/\/$/, "");
const bearer = (key) => ({ Authorization: `Bearer ${key}` });
const features = new Set((env.MODEL_POOL_FEATURES ?? "").split(/[ ,]+/));
const named = (name) => env[`MODEL_POOL_${name.toUpperCase()}`];
const model = "tiny-guide";
const messages = [{ role: "user", content: "What is keep-hot?" }];
const expected = "how long a model stays loaded";
const options = { temperature: 0 };
const patience = 20_000;

const client = new Ollama({ host, headers: bearer(env.MODEL_POOL_KEY ?? "none") });

const checks = [];
const check = (words, run, { feature, needs = [] } = {}) => checks.push({ words, run, feature, needs });

/** The package's error that the call ends with. */
async function fails(status, call) {
  try {
    const answer = await call();
    assert.fail(`expected ${status}, came: ${JSON.stringify(answer)}`);
  } catch (error) {
    if (error.status_code !== status) throw error;
    return error;
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
  const headers = bearer(env.MODEL_POOL_ADMIN_KEY);
  const answer = await fetch(`${host}/llm/admin/models?model=${encodeURIComponent(name)}`, { headers });
  const view = await answer.json();
  const one = view.models?.[0] ?? view;
  return one.replicas.reduce((sum, replica) => sum + replica.in_flight, 0) + one.waiting;
}

check("a chat is answered, and a stream says the same", async () => {
  const whole = await client.chat({ model, messages, options });
  assert(whole.message.content.includes(expected), JSON.stringify(whole));
  assert.deepEqual([whole.done, whole.done_reason], [true, "stop"]);
  assert(whole.eval_count > 0 && whole.total_duration >= whole.eval_duration);
  let text = "", last;
  for await (const part of await client.chat({ model, messages, options, stream: true })) {
    text += part.message.content;
    last = part;
  }
  assert.equal(text, whole.message.content);
  assert(last.done && last.prompt_eval_count > 0);
});

check("a prompt is answered, plain, streaming and raw", async () => {
  const prompt = messages[0].content;
  const whole = await client.generate({ model: `${model}:latest`, prompt, options });
  assert(whole.response.includes(expected));
  let text = "";
  for await (const part of await client.generate({ model, prompt, options, stream: true })) text += part.response;
  assert.equal(text, whole.response);
  const raw = await client.generate({ model, prompt: "Keep-hot is", raw: true, options: { ...options, num_predict: 6 } });
  assert(raw.response.length > 0 && raw.eval_count <= 6);
});

check("an answer follows a schema", async () => {
  const format = { type: "object", properties: { known: { type: "boolean" } }, required: ["known"], additionalProperties: false };
  const answer = await client.chat({ model, messages, format, options: { ...options, num_predict: 200 } });
  assert.equal(typeof JSON.parse(answer.message.content).known, "boolean");
}, { feature: "json_schema" });

check("models are listed, shown and running, and the version is told", async () => {
  const { models } = await client.list();
  const one = models.find((it) => it.name === `${model}:latest`);
  assert(one.size > 100_000 && one.digest.length === 64, JSON.stringify(one));
  const shown = await client.show({ model });
  assert.deepEqual(shown.details, one.details);
  const running = await client.ps();
  assert(running.models.some((it) => it.name === one.name && Date.parse(it.expires_at) > Date.now()));
  assert.match((await client.version()).version, /^\d+\.\d+\.\d+$/);
});

check("embeddings are vectors of the length 1", async () => {
  const name = named("embedder");
  const { embeddings } = await client.embed({ model: name, input: ["one two", "three"] });
  assert.equal(embeddings.length, 2);
  for (const vector of embeddings) assert(Math.abs(vector.reduce((sum, it) => sum + it * it, 0) - 1) < 1e-3);
  const { embedding } = await client.embeddings({ model: name, prompt: "three" });
  assert.equal(embedding.length, embeddings[1].length);
}, { needs: ["embedder"] });

check("a tool is called with an object", async () => {
  const parameters = { type: "object", properties: { city: { type: "string" } } };
  const tools = [{ type: "function", function: { name: "weather", description: "The weather", parameters } }];
  const answer = await client.chat({ model: named("talker"), messages, tools });
  assert.deepEqual(answer.message.tool_calls[0].function.arguments, { city: "Ulm" });
}, { needs: ["talker"] });

check("errors are the package's own, with their status and words", async () => {
  const unknown = await fails(404, () => client.chat({ model: "tiny-giude", messages }));
  assert(unknown.message.startsWith("model 'tiny-giude' not found") && unknown.message.includes(model));
  const wrong = await fails(400, () => client.generate({ model, prompt: "x", options: { top_k: "many" } }));
  assert(wrong.message.includes("options.top_k"));
  const stranger = new Ollama({ host, headers: bearer("mp-no-such-key") });
  await fails(401, () => stranger.list());
  await fails(403, () => client.generate({ model, prompt: "", keep_alive: 0 }));
  for (const call of [
    () => client.create({ model: "mine", from: model }),
    () => client.copy({ source: model, destination: "mine" }),
    () => client.push({ model }),
    () => client.delete({ model }),
  ]) await fails(501, call);
  assert.equal((await client.pull({ model })).status, "success");
  assert((await fails(404, () => client.pull({ model: "llama3.2" }))).message.includes("admin-client register"));
});

check("a stream that is aborted leaves nothing behind", async () => {
  const name = named("talker");
  const stream = await client.chat({ model: name, messages, stream: true });
  let count = 0;
  await assert.rejects(async () => {
    for await (const _ of stream) if (++count === 5) stream.abort();
  }, { name: "AbortError" });
  await until("nothing to be left", async () => (await requestsOf(name)) === 0);
}, { needs: ["talker", "admin_key"] });

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
