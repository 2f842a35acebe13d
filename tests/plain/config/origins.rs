//! The origin of each configuration value: a line of the file, a variable, or the default.

use std::collections::BTreeMap;

use model_pool::config::{Config, Origin};

use super::environment;

fn load(text: &str, variables: &[(&str, &str)]) -> Config {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pool.yaml");
    std::fs::write(&file, text).unwrap();
    Config::load(Some(&file), &environment(variables)).unwrap()
}

fn origins(config: &Config) -> BTreeMap<&str, Origin> {
    let origins = config.origins.iter();
    origins.map(|(key, origin)| (key, origin.clone())).collect()
}

#[test]
fn the_origin_of_a_value_is_its_line_its_variable_or_absent_for_defaults() {
    let text =
        "# ours\nserver:\n  listen: 127.0.0.1:9000\npool: {keep_hot: 5m,\n  queue_limit: 7}\n";
    let variable = "MODEL_POOL__POOL__QUEUE_LIMIT".to_owned();
    let config = load(text, &[(variable.as_str(), "9")]);
    let expected = [
        ("pool.keep_hot", Origin::File { line: 4 }),
        ("pool.queue_limit", Origin::Environment { variable }),
        ("server.listen", Origin::File { line: 3 }),
    ];
    assert_eq!(origins(&config), BTreeMap::from(expected));
    assert!(origins(&load("# nothing\n", &[])).is_empty());
}

#[test]
fn a_reload_keeps_the_origin_of_values_that_need_a_restart() {
    let old = load("server: {listen: 127.0.0.1:9000}\n", &[]);
    let text = "\n\nserver: {listen: 127.0.0.1:9001}\npool: {keep_hot: 5m}\n";
    let (config, _) = old.reloaded(&load(text, &[])).unwrap();
    let expected = [
        ("pool.keep_hot", Origin::File { line: 4 }),
        ("server.listen", Origin::File { line: 1 }),
    ];
    assert_eq!(origins(&config), BTreeMap::from(expected));
}

#[test]
fn origins_are_ignored_when_configurations_are_compared() {
    let (one, other) = (
        load("pool: {keep_hot: 10m}\n", &[]),
        load("\npool: {keep_hot: 10m}\n", &[]),
    );
    assert_ne!(origins(&one), origins(&other));
    assert_eq!(one.origins, other.origins);
}
