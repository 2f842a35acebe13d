//! Wrong inputs as people write them: in the configuration, in model files, on the command line and in requests. What the
//! program says of each must name the place and tell what to write instead. docs/internals/development.md has all of them as a
//! table;
//! `UPDATE=1 cargo test --test program wrong_inputs::` writes it.
//! One file because it is one list of mistakes, and the table in the documentation is made from it.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use support::service::Pool;
use support::table::rows_of;

const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/internals/development.md");
const BEGIN: &str = "<!-- wrong inputs: begin -->\n";
const END: &str = "<!-- wrong inputs: end -->";

/// The wrong text | the parts that its error must contain: the location and the remedy.
const CONFIGURATION: &str = r"
    server: {listen: 8080} | server.listen | write one like 127.0.0.1:8080
    server: {base_path: llm} | server.base_path | write one like /llm
    server: {body_limit: 10} | server.body_limit | write one like 24GiB
    server: {body_limit: -1MiB} | server.body_limit | write one like 24GiB
    server: {tls: {cert: nowhere.pem, key: nowhere.key}} | server.tls.cert nowhere.pem | in PEM, or remove server.tls
    server: {trusted_proxies: [10.0.0.0/99]} | server.trusted_proxies[0] | write one like 10.0.0.7
    server: {cors: {origins: [lab.example.org]}} | server.cors.origins[0] | https://lab.example.org
    server: {access_log: off, conections_max: 10} | server.conections_max | did you mean `connections_max`?
    server: [1, 2] | server: | keys with values
    servers: {listen: 127.0.0.1:1} | servers | did you mean `server`?
    inventory: {provider: cuda} | inventory.provider | known here: `auto`, `nvml`
    inventory: {provider: fixed} | inventory.devices is empty | list devices as {name: gpu0, memory: 24GiB}
    inventory: {provider: fixed, devices: [{name: a, memory: 24}]} | inventory.devices[0].memory | write one like 24GiB
    inventory: {headroom: 95%} | inventory.headroom | allowed 0% to 90%
    pool: {keep_hot: 10} | pool.keep_hot | write one like 10m
    pool: {keep_hot: -5m} | pool.keep_hot | write a duration like 10m
    pool: {queue_limit: 0} | pool.queue_limit is 0 | allowed: 1 to 1000000
    pool: {targets: {0: 0s}} | pool.targets.0 is 0s | allowed: 1ms to 1day
    pool: {targets: {1: 25h}} | pool.targets.1 | allowed: 1ms to 1day
    pool: {targets: {0: -5s}} | pool.targets | write a duration like 10m
    pool: {targets: {high: 10s}} | pool.targets.high is not a priority | as in {0: 30s, 1: 10s}
    pool: {idle_yields: 'yes'} | pool.idle_yields | never turns it off
    groups: {lab: {weight: 0}} | groups.lab.weight is 0 | allowed: 1 to 1000
    groups: {lab: {quota: {tokens: -1}}} | groups.lab.quota.tokens | allowed: 1 to 1000T
    groups: {lab: {quota: {gpu_hours: -1}}} | groups.lab.quota.gpu_hours is -1 | allowed: more than 0
    evening: {cleanup: '0 0 25 * * *'} | the hour (field 3) | allowed: 0 to 23
    evening: {cleanup: 9pm} | evening.cleanup | write six fields
    evening: {cleanup: '0 0 21 31 2 *'} | no such day exists | write six fields
    evening: {timezone: Berlin} | evening.timezone | Europe/Berlin
    auth: {inference: everyone} | auth.inference | known here: `open`, `loopback`, `key`
    state: {database_url: 'mysql://localhost/x'} | state.database_url | write sqlite://PATH
    state:\n  dir: data\n dir2: x | line 3, column 2 | keys of one section begin in the same column
    MODEL_POOL__POOL__KEEP_HOTT=10m | MODEL_POOL__POOL__KEEP_HOTT | did you mean
";

/// The file `m.yaml`; `…` stands for a valid engine.
const MODEL_FILES: &str = r"
    engine_config: {type: VLLMEngine} | m.yaml | model_id
    engine_config: {model_id: m, type: OllamaEngine} | m.yaml | VLLMEngine
    engine_config: {model_id: m, type: CommandEngine} | engine_config | command
    engine_config: {model_id: m, type: CandleEngine, model_path: nowhere} | nowhere | model_path
    engine_config: {model_id: m, type: CandleEngine, model_path: ., engine_kwargs: {concurency: 2}} | concurency | did you mean
    engine_config: {model_id: m, type: VLLMEngine, hf_model_id: a/b, engine_kwargs: {tensor_paralel_size: 2}} | tensor_paralel_size | tensor_parallel_size
    engine_config: {model_id: m, type: VLLMEngine, hf_model_id: a/b, env: {CUDA_VISIBLE_DEVICES: '0'}} | CUDA_VISIBLE_DEVICES | remove
    engine_config:\n  model_id: m\n type: CommandEngine | line 3 | keys of one section begin in the same column
    - engine_config: {} | m.yaml | engine_config
    …\nscaling_config: {num_workers: -1} | scaling_config.num_workers | allowed: 1 to 64
    …\nscaling_config: {num_workers: two} | scaling_config.num_workers | whole number
    …\npool_config: {priority: -1} | pool_config.priority | 0
    …\npool_config: {keep_hot: soon} | pool_config.keep_hot | write one like 10m
    …\npool_config: {memory_gib: -3} | pool_config.memory_gib | more than 0
    …\npool_config: {memory_gib: 5000} | 4.9 TiB | GiB
    …\npool_config: {unknown_fields: maybe} | pool_config.unknown_fields | known here
    …\npool_config: {plain_requests: maybe} | line 2 | pool_config.plain_requests
    …\ndeployment_config: {autoscaling_config: {min_replicas: 3, max_replicas: 1}} | min_replicas | max_replicas
    …\npool_konfig: {priority: 1} | pool_konfig | did you mean `pool_config`?
";

/// `model-pool` or `admin-client` with these arguments.
const COMMANDS: &str = r"
    model-pool serv | serv | a similar subcommand exists: 'serve'
    model-pool serve --confg x | --confg | a similar argument exists: '--config'
    model-pool serve --config nowhere.yaml | nowhere.yaml | --config
    model-pool check nowhere.yaml | nowhere.yaml | does not exist
    model-pool bench --url what | --url what | write it like http://127.0.0.1:8080/v1
    model-pool backup | <FILE> | Usage
    model-pool backup copy.db | cannot find the database | --config
    model-pool pull two/three/four | two/three/four | ORG/NAME
    model-pool import litellm nowhere.yaml | cannot read nowhere.yaml | No such file
    admin-client laod m | laod | 'load'
    admin-client load | <MODEL> | Usage
    admin-client load m --priority -1 | --priority | a priority is 0 or more
    admin-client load m --keep-hot soon | --keep-hot | write a time as 30s, 10m
    admin-client set m | --priority | --keep-hot
    admin-client load tiny-giude | tiny-giude | tiny-guide
    admin-client cordon gpu9 | gpu9 | host
";

/// The body of a chat for `tiny-guide`, or method, path and body.
const REQUESTS: &str = r#"
    {"model": "tiny-giude", "messages": []} | tiny-giude | tiny-guide
    {"messages": []} | model | choose a model from GET /v1/models
    {"model": "tiny-guide", "messages": []} | messages | message
    {"model": "tiny-guide", "messages": "hello"} | messages | list
    {"model": "tiny-guide", "messages": [{"role": "boss", "content": "x"}]} | messages[0].role | user
    {"model": "tiny-guide", "messages": [{"role": "user", "content": "x"}], "temprature": 1} | temprature | did you mean temperature?
    {"model": "tiny-guide", "messages": [{"role": "user", "content": "x"}], "temperature": 9} | temperature | from 0 to 2
    {"model": "tiny-guide", "messages": [{"role": "user", "content": "x"}], "max_tokens": -1} | max_tokens | whole number
    {"model": "tiny-guide", "messages": [{"role": "user", "content": "x"}], "n": 1000} | n | server.sequences_max
    {"model": "tiny-guide", "messages": [{"role": "user", "content": "x"}], "stream": "yes"} | stream | true or false
    {"model": "tiny-guide" | JSON | column
    GET /v1/chat/completion | /v1/chat/completion | /v1/chat/completions
    POST /v1/embeddings {"model": "tiny-guide", "input": "x"} | tiny-guide | embeddings
    POST /llm/admin/load {"model": "tiny-guide", "priority": -1} | priority | 0
    POST /llm/admin/load {"model": "tiny-guide", "priorty": 1} | priorty | did you mean
    POST /llm/admin/load {"model": "tiny-guide", "keep_hot": "soon"} | keep_hot | 10m
    PATCH /llm/admin/models?model=nosuch {"priority": 1} | nosuch | models
    DELETE /llm/admin/keys/nosuch | nosuch | key
"#;

fn main_folder(config: &str, model: Option<&str>) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir(at("models")).unwrap();
    fs::write(at("config.yaml"), config).unwrap();
    if let Some(text) = model {
        fs::write(at("models/m.yaml"), text).unwrap();
    }
    folder
}

/// The joined error lines. A command that succeeds is an error in the table.
fn said(folder: &Path, program: &Path, words: &[&str], env: &[(&str, &str)]) -> String {
    let mut command = Command::new(program);
    command.args(words).current_dir(folder).env("NO_COLOR", "1");
    let output = command.envs(env.iter().copied()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{words:?} was taken: {text}");
    let is_count = |line: &str| {
        let ends = [" error", " errors", " cannot be started"];
        line.starts_with("model-pool: ") && ends.iter().any(|end| line.ends_with(end))
    };
    // Models that cannot be started are a result of `check`, not an error.
    let results = String::from_utf8_lossy(&output.stdout).into_owned();
    let cannot = results
        .lines()
        .filter(|line| line.starts_with("model ") && line.contains("cannot be started"));
    let cannot: Vec<&str> = cannot.collect();
    let worth = text.lines().chain(cannot).map(str::trim).filter(|line| {
        let is_noise = line.is_empty() || line.starts_with("warning") || is_count(line);
        !is_noise && !line.starts_with("For more information")
    });
    let lines: Vec<&str> = worth.take(4).collect();
    let folder = folder.display().to_string();
    lines.join(" ").replace(&format!("{folder}/"), "")
}

fn checked(config: &str, model: Option<&str>, env: &[(&str, &str)]) -> String {
    let folder = main_folder(config, model);
    let words = ["check", "--config", "config.yaml"];
    said(folder.path(), &support::program(), &words, env)
}

fn of_configuration(wrong: &str) -> String {
    match wrong
        .split_once('=')
        .filter(|_| wrong.starts_with("MODEL_POOL"))
    {
        Some(variable) => checked("catalog: {models_dir: models}\n", None, &[variable]),
        None => checked(&format!("{wrong}\n"), None, &[]),
    }
}

fn of_model_file(wrong: &str) -> String {
    let right = "engine_config: {model_id: m, type: CommandEngine, command: [sleep, '{{ port }}']}";
    let config = "catalog: {models_dir: models}\ninventory: {provider: fixed, devices: [{name: gpu0, memory: 24GiB}]}\n";
    checked(config, Some(&wrong.replace('…', right)), &[])
}

fn of_command(pool: &Pool, wrong: &str) -> String {
    let mut words = wrong.split(' ');
    let program = words.next().unwrap();
    let words: Vec<&str> = words.collect();
    let folder = main_folder("", None);
    let (server, key) = (format!("http://{}", pool.address()), pool.admin_key());
    let env = [
        ("MODEL_POOL_SERVER", server.as_str()),
        ("MODEL_POOL_ADMIN_KEY", key.as_str()),
    ];
    let program = support::program().with_file_name(program);
    said(folder.path(), &program, &words, &env)
}

fn of_request(pool: &Pool, wrong: &str) -> String {
    let (method, path, body) = if wrong.starts_with('{') {
        ("POST", "/v1/chat/completions", wrong)
    } else {
        let (method, rest) = wrong.split_once(' ').unwrap();
        let (path, body) = rest.split_once(' ').unwrap_or((rest, ""));
        (method, path, body)
    };
    let (status, text, _) = pool.request(method, path, body, Some(&pool.admin_key()));
    let response: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{wrong}: {text}"));
    assert!((400..=501).contains(&status), "{wrong}: {status}");
    let message = response["error"]["message"].as_str().unwrap_or_default();
    format!("{status}: {message}")
}

/// A table's cell has one line and no bars.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ⏎ ")
}

fn compare(
    title: &str,
    wrong: &'static str,
    said: impl Fn(&str) -> String,
) -> (String, Vec<String>) {
    let mut table = format!("\n**{title}**\n\n| input | what the program says |\n|---|---|\n");
    let mut lacking = Vec::new();
    for [input, place, remedy] in rows_of(wrong) {
        let said = said(input);
        for part in [place, remedy] {
            if !said.contains(part) {
                lacking.push(format!("`{input}` should say `{part}`: {said}"));
            }
        }
        // Outside code, a browser treats `<FILE>` as a tag and hides it.
        let said = cell(&said).replace('<', "&lt;");
        table += &format!("| `{}` | {said} |\n", cell(input));
    }
    (table, lacking)
}

#[test]
fn every_response_to_invalid_input_names_the_place_and_gives_advice() {
    let pool = Pool::demo_with(
        "evening: {cleanup: null, reopen: null}\nsources: {offline: true}\nauth: {inference: key}\n",
    );
    let parts = [
        compare("Configuration", CONFIGURATION, of_configuration),
        compare("Model files", MODEL_FILES, of_model_file),
        compare("Commands", COMMANDS, |input| of_command(&pool, input)),
        compare("Requests", REQUESTS, |input| of_request(&pool, input)),
    ];
    let lacking: Vec<String> = parts
        .iter()
        .flat_map(|(_, lacking)| lacking.clone())
        .collect();
    assert!(lacking.is_empty(), "{}", lacking.join("\n"));
    let table: String = parts.iter().map(|(table, _)| table.as_str()).collect();
    let page = fs::read_to_string(DOCUMENT).unwrap();
    let (before, rest) = page.split_once(BEGIN).expect("where the table begins");
    let (written, after) = rest.split_once(END).expect("where the table ends");
    if std::env::var_os("UPDATE").is_some() {
        fs::write(DOCUMENT, format!("{before}{BEGIN}{table}{END}{after}")).unwrap();
        return;
    }
    assert_eq!(
        written, table,
        "the table of docs/internals/development.md is not what the program says; look at the difference, and run UPDATE=1 cargo test --test program wrong_inputs:: if it is meant"
    );
}
