//! Templates in commands: their substitution, and the time at which mistakes are reported.

use std::path::Path;

use model_pool::catalog::{LaunchValues, Recipe};
use model_pool::pool::Bytes;
use serde_json::json;
use support::table;

use super::assert_has;
use super::documents::{command, read, refusal};

#[test]
fn templates_are_filled_in_with_values_of_the_launch() {
    let (entry, _) = read(&command(&[
        (
            "engine_config.command",
            json!([
                "vllm",
                "serve",
                "{{ model_path }}",
                "--port",
                "{{ port }}",
                "-tp={{ device_count }}",
                "--name",
                "{{ model_name }}",
                "--len",
                "{{ context }}"
            ]),
        ),
        (
            "engine_config.env",
            json!({"VISIBLE": "{{ devices }}", "LIMIT": "{{ memory_bytes }}"}),
        ),
        ("engine_config.hf_model_id", json!("org/on-the-hub")),
        ("engine_config.max_total_tokens", json!(4096)),
    ]))
    .unwrap();
    let Recipe::Command(recipe) = &entry.recipe else {
        panic!("{:?}", entry.recipe)
    };
    let values = LaunchValues {
        model_name: "org/model",
        port: Some(4711),
        socket: None,
        devices: &[2, 5],
        memory: Bytes(123_456),
        member: None,
    };
    let rendered = recipe.render(&values).unwrap();
    assert_eq!(
        rendered.argv,
        [
            "vllm",
            "serve",
            "org/on-the-hub",
            "--port",
            "4711",
            "-tp=2",
            "--name",
            "org/model",
            "--len",
            "4096"
        ]
    );
    assert_eq!(
        (
            rendered.env["VISIBLE"].0.as_str(),
            rendered.env["LIMIT"].0.as_str()
        ),
        ("2,5", "123456")
    );
}

#[test]
fn a_socket_is_filled_in_when_the_engine_listens_on_one() {
    let (entry, _) = read(&command(&[
        (
            "engine_config.command",
            json!(["serve", "--uds={{ socket }}"]),
        ),
        ("engine_config.listen", json!("socket")),
    ]))
    .unwrap();
    let Recipe::Command(recipe) = &entry.recipe else {
        panic!("{:?}", entry.recipe)
    };
    let socket = Some(Path::new("/run/r1.sock"));
    let values = LaunchValues {
        model_name: "m",
        port: None,
        socket,
        devices: &[],
        memory: Bytes(1),
        member: None,
    };
    assert_eq!(
        recipe.render(&values).unwrap().argv,
        ["serve", "--uds=/run/r1.sock"]
    );
    let nowhere = LaunchValues {
        socket: None,
        ..values
    };
    assert_has(
        &recipe.render(&nowhere).unwrap_err().to_string(),
        &["engine_config.command[1]"],
    );
}

/// A command | parts of the message
const COMMANDS: &str = r#"
    ["serve", "{{ port }}", "{{ prot }}"] | engine_config.command[2] | it uses `prot` | {{ port }}
    ["serve", "{{ port"] | engine_config.command[1]
    ["serve", "{{ port }}", "{{ model_path }}"] | engine_config.command[2] | it uses `model_path`
    ["serve", "{{ port }}", "{{ context }}"] | max_total_tokens
    ["serve"] | {{ port }} | does not receive its address
    [] | engine_config.command | no program
"#;

#[test]
fn a_template_that_cannot_be_filled_in_is_refused_when_it_is_read() {
    for row in table::rows(COMMANDS) {
        let change = [("engine_config.command", table::json(row[0]))];
        assert_has(&refusal(&command(&change)), &row[1..]);
    }
    assert_has(
        &refusal(&command(&[("engine_config.listen", json!("socket"))])),
        &["command[2]", "{{ socket }}"],
    );
}

#[test]
fn values_of_the_environment_are_never_printed() {
    let (entry, _) = read(&command(&[(
        "engine_config.env",
        json!({"HF_TOKEN": "hf_hunter2"}),
    )]))
    .unwrap();
    assert!(!format!("{entry:?}").contains("hunter2"));
    let Recipe::Command(recipe) = &entry.recipe else {
        panic!("{:?}", entry.recipe)
    };
    assert_eq!(recipe.env["HF_TOKEN"].0, "hf_hunter2");
    let broken = [
        ("engine_config.env", json!({"HF_TOKEN": "hf_hunter2"})),
        ("pool_config.priority", json!("x")),
    ];
    assert!(!refusal(&command(&broken)).contains("hunter2"));
    let template = [(
        "engine_config.env",
        json!({"HF_TOKEN": "hf_hunter2 {{ nothing }}"}),
    )];
    let text = refusal(&command(&template));
    assert_has(&text, &["engine_config.env.HF_TOKEN"]);
    assert!(!text.contains("hunter2"), "{text}");
}
