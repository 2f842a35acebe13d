//! Model files of external endpoints: permitted and refused keys.

use model_pool::catalog::{Entry, KeySource, Recipe, Reference, RemoteRecipe, Source};
use model_pool::config::Config;
use model_pool::pool::{Bytes, Span};
use serde_json::{Value, json};

use super::assert_has;
use super::documents::{candle, document, refusal};

fn remote(changes: &[(&str, Value)]) -> Value {
    let base = json!({"engine_config": {
        "model_id": "org/model", "type": "RemoteEngine", "url": "https://api.example.org/v1",
    }});
    document(base, changes)
}

fn from(document: &Value, source: Source) -> Result<Entry, String> {
    Entry::from_document(document, source, &Config::default(), &Reference::default())
        .map(|(entry, _)| entry)
        .map_err(|error| error.to_string())
}

fn recipe_of(document: &Value) -> RemoteRecipe {
    match from(document, Source::File("far.yaml".into()))
        .unwrap()
        .recipe
    {
        Recipe::Remote(recipe) => recipe,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_remote_model_needs_only_a_url_and_takes_no_local_device() {
    let entry = from(&remote(&[]), Source::Registered).unwrap();
    assert_eq!(entry.recipe.engine(), "remote");
    assert_eq!(
        (entry.devices_per_replica, entry.seats_per_replica),
        (1, 20)
    );
    let (spec, source) = entry.spec(&Config::default(), None).unwrap();
    assert_eq!(
        (spec.bytes_per_device, source.name()),
        (Bytes::ZERO, "file")
    );
    assert_eq!(spec.load_deadline, Span::from_secs(60));
    assert!(spec.loader.is_none() && spec.wider.is_empty() && spec.parking.is_none());
    let recipe = recipe_of(&remote(&[]));
    assert_eq!((recipe.health_path.as_str(), recipe.key), ("/models", None));
}

#[test]
fn every_remote_key_is_parsed_and_round_trips() {
    let document = remote(&[
        ("engine_config.served_model_name", json!("their-name")),
        ("engine_config.api_key_env", json!("FAR_KEY")),
        ("engine_config.health_path", json!("/status")),
        ("engine_config.headers", json!({"X-Team": "a secret"})),
        ("engine_config.max_total_tokens", json!(8192)),
        ("deployment_config", json!({"max_ongoing_requests": 3})),
        (
            "pool_config",
            json!({"queue_limit": 5, "queue_timeout": "30s", "priority": 2}),
        ),
    ]);
    let entry = from(&document, Source::Registered).unwrap();
    assert_eq!(entry.seats_per_replica, 3);
    let recipe = recipe_of(&document);
    assert_eq!(
        recipe.key,
        Some(KeySource::Environment("FAR_KEY".to_owned()))
    );
    assert_eq!(recipe.context, Some(8192));
    assert_eq!(recipe.headers["x-team"].0, "a secret");
    assert!(!format!("{entry:?}").contains("a secret"));
    assert_eq!(from(&entry.to_document(), Source::Registered), Ok(entry));
}

#[test]
fn memory_and_gpus_from_the_reference_are_ignored_for_remote_models() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("reference.json");
    let known = json!({"org/model": {"gpus_per_replica": 4, "memory_gib": 300}});
    std::fs::write(&file, known.to_string()).unwrap();
    let (reference, _) = Reference::load(&file).unwrap();
    let config = Config::default();
    let (entry, _) =
        Entry::from_document(&remote(&[]), Source::Registered, &config, &reference).unwrap();
    let (spec, _) = entry.spec(&config, None).unwrap();
    assert_eq!(
        (spec.devices_per_replica, spec.bytes_per_device),
        (1, Bytes::ZERO)
    );
}

#[test]
fn keys_without_meaning_for_a_remote_model_are_refused_by_name() {
    for (key, value) in [
        ("engine_config.hf_model_id", json!("a/b")),
        ("engine_config.model_path", json!("/models/a")),
        ("engine_config.engine_kwargs", json!({"concurrency": 2})),
        ("engine_config.env", json!({"A": "b"})),
        ("engine_config.command", json!(["serve"])),
        ("engine_config.listen", json!("port")),
        ("engine_config.ready_path", json!("/health")),
        ("engine_config.working_dir", json!("/")),
        ("pool_config", json!({"gpus_per_replica": 1})),
        ("pool_config", json!({"memory_gib": 3})),
        ("pool_config", json!({"devices": {"names": ["gpu0"]}})),
        ("pool_config", json!({"stop_grace": "3s"})),
        ("pool_config", json!({"idle_probe": "60s"})),
        ("scaling_config", json!({"num_workers": 2})),
    ] {
        let text = refusal(&remote(&[(key, value)]));
        assert_has(&text, &[key, "RemoteEngine", "remove it"]);
    }
}

#[test]
fn remote_models_may_validate_characters_but_not_tokens() {
    let rule = json!({"validation": {"max_characters": 9, "pattern": "[a-z]"}});
    let entry = from(&remote(&[("pool_config", rule)]), Source::Registered).unwrap();
    assert_eq!(from(&entry.to_document(), Source::Registered), Ok(entry));
    let rule = json!({"validation": {"max_tokens": 9}});
    let text = refusal(&remote(&[("pool_config", rule)]));
    assert_has(
        &text,
        &["pool_config.validation.max_tokens", "cannot be counted"],
    );
}

#[test]
fn endpoint_keys_are_refused_for_local_models() {
    for (key, value) in [
        ("url", json!("https://x")),
        ("api_key_env", json!("KEY")),
        ("api_key_file", json!("/key")),
        ("health_path", json!("/models")),
        ("headers", json!({"x": "y"})),
    ] {
        let field = format!("engine_config.{key}");
        let text = refusal(&candle(&[(&field, value)]));
        assert_has(&text, &[&field, "type: RemoteEngine only"]);
    }
}

#[test]
fn invalid_remote_values_are_refused_and_a_misplaced_api_key_is_not_repeated() {
    let refused = |key: &str, value: Value| refusal(&remote(&[(key, value)]));
    assert_has(
        &refused("engine_config.url", json!("ftp://x")),
        &["https://"],
    );
    assert_has(&refused("engine_config.url", Value::Null), &["is missing"]);
    assert_has(
        &refused("engine_config.health_path", json!("models")),
        &["is not a path"],
    );
    assert_has(
        &refused("engine_config.served_model_name", json!(" ")),
        &["is empty"],
    );
    let text = refused("engine_config.api_key_env", json!("sesame=open"));
    assert!(
        text.contains("not the key") && !text.contains("sesame"),
        "{text}"
    );
    let text = refused("engine_config.headers", json!({"Authorization": "sesame"}));
    assert!(
        text.contains("set by the pool") && !text.contains("sesame"),
        "{text}"
    );
    let text = refused("engine_config.headers", json!({"x-a": "sesame\r\nHost: b"}));
    assert!(
        text.contains("control characters") && !text.contains("sesame"),
        "{text}"
    );
    let both = remote(&[
        ("engine_config.api_key_env", json!("KEY")),
        ("engine_config.api_key_file", json!("/key")),
    ]);
    assert_has(&refusal(&both), &["api_key_env", "api_key_file"]);
}

#[test]
fn plain_http_is_accepted_only_from_files_or_for_loopback() {
    let plain = remote(&[("engine_config.url", json!("http://10.0.0.7:8000/v1"))]);
    let refused = from(&plain, Source::Registered).unwrap_err();
    assert_has(&refused, &["engine_config.url", "only https"]);
    assert!(!recipe_of(&plain).only_loopback);
    let near = remote(&[("engine_config.url", json!("http://localhost:8000/v1"))]);
    let entry = from(&near, Source::Registered).unwrap();
    assert!(matches!(entry.recipe, Recipe::Remote(recipe) if recipe.only_loopback));
}

#[test]
fn the_remote_example_of_the_manual_loads() {
    let folder = super::repository("docs/examples");
    let text = std::fs::read_to_string(folder.join("remote.yaml")).unwrap();
    let models = tempfile::tempdir().unwrap();
    std::fs::write(models.path().join("remote.yaml"), text).unwrap();
    let mut config = Config::default();
    config.catalog.models_dir = models.path().to_owned();
    let (catalog, warnings) = model_pool::catalog::Catalog::load(&config).unwrap();
    assert_eq!(warnings, Vec::new());
    assert!(
        catalog
            .entries()
            .values()
            .all(|entry| entry.recipe.is_remote())
    );
    assert_eq!(catalog.entries().len(), 1);
}
