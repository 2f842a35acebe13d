// Checks a dashboard of Grafana against the types that Grafana's own SDK publishes: the dashboard, each panel with its options and
// fields, each variable, and each query. Prints what is wrong, a line each, and ends with 1 if there is anything.
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import Ajv from 'ajv';
import { createGenerator } from 'ts-json-schema-generator';

const types = folder => fileURLToPath(new URL(`node_modules/@grafana/grafana-foundation-sdk/dist/${folder}/types.gen.d.ts`, import.meta.url));
const ajv = new Ajv({ allErrors: true, strict: false });
const known = new Map(), problems = [];

/** A test for one type. Fields that the type does not have are wrong, too. */
function testOf(folder, type) {
  const name = `${folder} ${type}`;
  if (!known.has(name)) {
    const generator = createGenerator({ path: types(folder), type, skipTypeCheck: true, expose: 'all', jsDoc: 'none', additionalProperties: false });
    known.set(name, ajv.compile(generator.createSchema(type)));
  }
  return known.get(name);
}

function check(where, folder, type, value) {
  const test = testOf(folder, type);
  if (!test(value)) problems.push(...test.errors.map(it => `${where}${it.instancePath}: ${it.message} ${JSON.stringify(it.params)}`));
}

const { panels, ...dashboard } = JSON.parse(readFileSync(process.argv[2], 'utf8'));
check('dashboard', 'dashboard', 'Dashboard', dashboard);
for (const panel of panels) {
  const where = `panel “${panel.title}”`;
  if (panel.type === 'row') {
    check(where, 'dashboard', 'RowPanel', panel);
    continue;
  }
  const { targets, ...rest } = panel, { custom } = panel.fieldConfig.defaults;
  check(where, 'dashboard', 'Panel', rest);
  check(`${where} options`, panel.type, 'Options', panel.options);
  if (custom) check(`${where} custom`, panel.type, 'FieldConfig', custom);
  for (const target of targets) check(`${where} target`, 'prometheus', 'Dataquery', target);
}
console.log(problems.join('\n') || `${panels.length} panels are as Grafana's types have them`);
process.exit(problems.length ? 1 : 0);
