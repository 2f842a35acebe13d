// The `openai` package of npm and the AI SDK over every wire that they have: rows of the table in docs/guides/clients.md.
// wires.py says what a row is; the scripted engine is the same.

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

globalThis.AI_SDK_LOG_WARNINGS = false;
const modules = process.env.MODEL_POOL_NODE_MODULES;
const require = createRequire(`${modules}/`);
const load = (name) => import(pathToFileURL(require.resolve(name)).href);
const { default: OpenAI } = await load("openai");
const { zodResponseFormat, zodTextFormat } = await load("openai/helpers/zod");
const { generateText, streamText, tool, stepCountIs, Output, APICallError } = await load("ai");
const { createOpenAI } = await load("@ai-sdk/openai");
const { createAnthropic } = await load("@ai-sdk/anthropic");
const { createOpenAICompatible } = await load("@ai-sdk/openai-compatible");
const { z } = await load("zod");

const url = process.env.MODEL_POOL_URL.replace(/\/$/, "");
const apiKey = process.env.MODEL_POOL_KEY;
const model = "writer";
const unknown = "wirter";
const columns = ["chat", "stream", "tools", "second turn", "structured", "reasoning", "error"];
const plain = "Hello from the engine.";
const thought = "I look.";
const fact = { city: "Ulm", degrees: 21 };
const afterTool = "It is 21 degrees in Ulm.";
const Fact = z.object({ city: z.string(), degrees: z.number().int() });

const rows = [];
const row = (client, wire, cells) => rows.push({ client, wire, cells });

/** The error of this class that the call ends with, which repeats what the pool said. */
async function fails(kind, call) {
  const error = await call().then((answer) => assert.fail(`expected an error, came: ${JSON.stringify(answer)}`), (error) => error);
  assert(kind.isInstance ? kind.isInstance(error) : error instanceof kind, String(error));
  assert(error.message.includes("no model is called"), error.message);
  return error;
}

const openai = new OpenAI({ baseURL: `${url}/v1`, apiKey, maxRetries: 0 });
const ask = [{ role: "user", content: "How warm is it?" }];
const parameters = z.toJSONSchema(Fact);

function openaiChat() {
  const create = (fields = {}) => openai.chat.completions.create({ model, messages: ask, ...fields });
  row("openai (npm)", "chat", {
    chat: async () => assert.equal((await create()).choices[0].message.content, plain),
    stream: async () => {
      let text = "";
      for await (const chunk of await create({ stream: true })) text += chunk.choices[0]?.delta?.content ?? "";
      assert.equal(text, plain);
    },
    tools: async () => {
      const tools = [{ type: "function", function: { name: "note_weather", parameters } }];
      const said = (await create({ tools })).choices[0].message;
      assert.deepEqual(JSON.parse(said.tool_calls[0].function.arguments), fact);
      const messages = [...ask, said, { role: "tool", tool_call_id: said.tool_calls[0].id, content: "noted" }];
      assert.equal((await create({ tools, messages })).choices[0].message.content, afterTool);
    },
    "second turn": async () => {
      const said = (await create()).choices[0].message;
      const again = await create({ messages: [...ask, said, { role: "user", content: "And now?" }] });
      assert.equal(again.choices[0].message.content, plain);
    },
    structured: async () => {
      const answer = await openai.chat.completions.parse({ model, messages: ask, response_format: zodResponseFormat(Fact, "fact") });
      assert.deepEqual(answer.choices[0].message.parsed, fact);
    },
    reasoning: async () => {
      const answer = await create({ reasoning_effort: "low" });
      assert.equal(answer.choices[0].message.reasoning_content, thought);
    },
    error: async () => fails(OpenAI.NotFoundError, () => create({ model: unknown })),
  });
}

function openaiResponses() {
  const create = (fields = {}) => openai.responses.create({ model, input: "How warm is it?", ...fields });
  row("openai (npm)", "responses", {
    chat: async () => assert.equal((await create()).output_text, plain),
    stream: async () => {
      const stream = openai.responses.stream({ model, input: "How warm is it?" });
      assert.equal((await stream.finalResponse()).output_text, plain);
    },
    tools: async () => {
      const tools = [{ type: "function", name: "note_weather", parameters, strict: true }];
      const first = await create({ tools });
      const call = first.output.find((item) => item.type === "function_call");
      assert.deepEqual(JSON.parse(call.arguments), fact);
      const input = [{ type: "function_call_output", call_id: call.call_id, output: "noted" }];
      assert.equal((await create({ tools, input, previous_response_id: first.id })).output_text, afterTool);
    },
    "second turn": async () => {
      const first = await create({ store: true });
      const second = await create({ store: true, input: "And now?", previous_response_id: first.id });
      assert.equal((await openai.responses.retrieve(second.id)).output_text, plain);
      await openai.responses.delete(second.id);
    },
    structured: async () => {
      const answer = await openai.responses.parse({ model, input: "How warm is it?", text: { format: zodTextFormat(Fact, "fact") } });
      assert.deepEqual(answer.output_parsed, fact);
    },
    reasoning: async () => {
      const answer = await create({ reasoning: { effort: "low", summary: "auto" } });
      assert.equal(answer.output[0].summary[0].text, thought);
    },
    error: async () => fails(OpenAI.NotFoundError, () => create({ model: unknown })),
  });
}

/** The AI SDK with one of its providers. `deep`: options that switch reasoning on. */
function aiSdk(client, wire, provider, deep) {
  const ask = { model: provider(model), prompt: "How warm is it?", maxRetries: 0 };
  const tools = () => {
    const noted = [];
    const note_weather = tool({
      description: "Notes the weather.",
      inputSchema: Fact,
      execute: async (input) => {
        noted.push(input);
        return "noted";
      },
    });
    return { noted, tools: { note_weather } };
  };
  row(client, wire, {
    chat: async () => assert.equal((await generateText(ask)).text, plain),
    stream: async () => {
      let text = "";
      for await (const delta of streamText(ask).textStream) text += delta;
      assert.equal(text, plain);
    },
    tools: async () => {
      const { noted, tools: given } = tools();
      const result = await generateText({ ...ask, tools: given, stopWhen: stepCountIs(3) });
      assert.deepEqual(noted, [fact]);
      assert.equal(result.text, afterTool);
    },
    "second turn": async () => {
      const first = await generateText(ask);
      const messages = [{ role: "user", content: "How warm is it?" }, ...first.response.messages, { role: "user", content: "And now?" }];
      assert.equal((await generateText({ ...ask, prompt: undefined, messages })).text, plain);
    },
    structured: async () => {
      const result = await generateText({ ...ask, output: Output.object({ schema: Fact }) });
      assert.deepEqual(result.output, fact);
    },
    ...(deep && {
      reasoning: async () => {
        const result = await generateText({ ...ask, providerOptions: deep });
        assert.equal(result.reasoningText, thought);
        const messages = [{ role: "user", content: "How warm is it?" }, ...result.response.messages, { role: "user", content: "And now?" }];
        assert.equal((await generateText({ ...ask, prompt: undefined, messages, providerOptions: deep })).text, plain);
      },
    }),
    error: async () => fails(APICallError, () => generateText({ ...ask, model: provider(unknown) })),
  });
}

openaiChat();
openaiResponses();
const own = createOpenAI({ baseURL: `${url}/v1`, apiKey });
const compatible = createOpenAICompatible({ name: "pool", baseURL: `${url}/v1`, apiKey, supportsStructuredOutputs: true });
const claude = createAnthropic({ baseURL: `${url}/v1`, apiKey });
aiSdk("AI SDK, openai-compatible", "chat", compatible, { pool: { reasoningEffort: "low" } });
// Over chat this provider does not know that there is reasoning.
aiSdk("AI SDK, openai", "chat", own.chat, undefined);
aiSdk("AI SDK, openai", "responses", own.responses, {
  openai: { reasoningEffort: "low", reasoningSummary: "auto", forceReasoning: true },
});
aiSdk("AI SDK, anthropic", "messages", claude, { anthropic: { thinking: { type: "enabled", budgetTokens: 2000 } } });

let passed = 0;
for (const { client, wire, cells } of rows) {
  const told = { client, wire };
  for (const column of columns.filter((column) => cells[column])) {
    try {
      await cells[column]();
    } catch (error) {
      console.error(error);
      console.log(`FAILED: ${client} over ${wire}: ${column}`);
      process.exit(1);
    }
    told[column] = "yes";
    passed += 1;
    console.log(`ok: ${client} over ${wire}: ${column}`);
  }
  console.log(`row: ${JSON.stringify(told)}`);
}
console.log(`${passed} passed, 0 failed`);
process.exit(0);
