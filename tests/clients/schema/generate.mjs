// Writes openai.json, responses.json and anthropic.json beside this file from the types of the installed packages `openai`
// and `@anthropic-ai/sdk`: `npm ci && npm run schema` in tests/clients. One definition a line, so that a newer version shows as a diff.

import { readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { createGenerator } from "ts-json-schema-generator";

const here = dirname(fileURLToPath(import.meta.url));
const versions = ["openai", "@anthropic-ai/sdk"].map((name) => {
  const found = createRequire(import.meta.url).resolve(name).replace(/index\.\w+$/, "package.json");
  const { version, license } = JSON.parse(readFileSync(found, "utf8"));
  return `npm's ${name} ${version} (${license})`;
});
const all = [
  ["published.ts", "Published", "openai.json", `${versions[0]}, which OpenAI`],
  ["published.ts", "PublishedResponses", "responses.json", `${versions[0]}, which OpenAI`],
  ["published_anthropic.ts", "PublishedAnthropic", "anthropic.json", `${versions[1]}, which Anthropic`],
];

for (const [source, type, file, origin] of all) {
  const path = join(here, source);
  const options = { path, type, tsconfig: join(here, "tsconfig.json"), skipTypeCheck: true, jsDoc: "none" };
  const schema = createGenerator({ ...options, additionalProperties: false }).createSchema(type);
  const head = {
    $schema: schema.$schema,
    $comment: `Made by generate.mjs from the types of ${origin} generates from its published OpenAPI document.`,
  };
  const lines = Object.entries(schema.definitions).map(([name, one]) => `${JSON.stringify(name)}: ${JSON.stringify(one)}`);
  const text = `${JSON.stringify(head).slice(0, -1)},\n"definitions": {\n${lines.join(",\n")}\n}}\n`;
  JSON.parse(text);
  writeFileSync(join(here, file), text);
}
