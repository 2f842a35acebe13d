// Writes openai.json and responses.json beside this file from the types of the installed `openai` package:
// `npm ci && npm run schema` in tests/clients. One definition a line, so that a newer version shows as a diff.

import { readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { createGenerator } from "ts-json-schema-generator";

const here = dirname(fileURLToPath(import.meta.url));
const package_ = createRequire(import.meta.url).resolve("openai").replace(/index\.\w+$/, "package.json");
const { version, license } = JSON.parse(readFileSync(package_, "utf8"));

for (const [type, file] of [["Published", "openai.json"], ["PublishedResponses", "responses.json"]]) {
  const path = join(here, "published.ts");
  const options = { path, type, tsconfig: join(here, "tsconfig.json"), skipTypeCheck: true, jsDoc: "none" };
  const schema = createGenerator({ ...options, additionalProperties: false }).createSchema(type);
  const head = {
    $schema: schema.$schema,
    $comment: `Made by generate.mjs from the types of npm's openai ${version} (${license}), which OpenAI generates from its published OpenAPI document.`,
  };
  const lines = Object.entries(schema.definitions).map(([name, one]) => `${JSON.stringify(name)}: ${JSON.stringify(one)}`);
  const text = `${JSON.stringify(head).slice(0, -1)},\n"definitions": {\n${lines.join(",\n")}\n}}\n`;
  JSON.parse(text);
  writeFileSync(join(here, file), text);
}
