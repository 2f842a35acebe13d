//! Model files of Ray Serve applications: permitted and refused keys, and their effects.

use model_pool::catalog::{Entry, RayServeRecipe, Recipe, Reference, ServeApplication, Source};
use model_pool::config::Config;
use model_pool::pool::{Bytes, Span};
use serde_json::{Value, json};
use support::table;

use super::assert_has;
use super::documents::document;

fn llm(changes: &[(&str, Value)]) -> Value {
    let base = json!({"engine_config": {
        "model_id": "org/model", "type": "RayServeEngine", "address": "http://ray-head:8265/",
    }});
    document(base, changes)
}

fn own(changes: &[(&str, Value)]) -> Value {
    let base = json!({"engine_config": {
        "model_id": "org/model", "type": "RayServeEngine", "address": "http://ray-head:8265",
        "import_path": "lab.app:build",
    }});
    document(base, changes)
}

fn from(document: &Value, source: Source, config: &Config) -> Result<Entry, String> {
    Entry::from_document(document, source, config, &Reference::default())
        .map(|(entry, _)| entry)
        .map_err(|error| error.to_string())
}

fn read(document: &Value) -> Result<Entry, String> {
    from(
        document,
        Source::File("ray.yaml".into()),
        &Config::default(),
    )
}

fn recipe_of(document: &Value) -> RayServeRecipe {
    match read(document).unwrap().recipe {
        Recipe::RayServe(recipe) => *recipe,
        other => panic!("{other:?}"),
    }
}

fn kwargs_of(document: &Value) -> Value {
    match recipe_of(document).application {
        ServeApplication::Llm { engine_kwargs, .. } => Value::Object(engine_kwargs),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_ray_serve_model_needs_only_an_address_and_takes_no_local_device() {
    let entry = read(&llm(&[])).unwrap();
    assert_eq!(entry.recipe.engine(), "ray_serve");
    assert!(entry.recipe.is_remote());
    assert_eq!(
        (entry.devices_per_replica, entry.seats_per_replica),
        (1, 32)
    );
    let (spec, source) = entry.spec(&Config::default(), None).unwrap();
    assert_eq!(
        (spec.bytes_per_device, source.name()),
        (Bytes::ZERO, "unseen")
    );
    assert_eq!(spec.load_deadline, Span::from_secs(900));
    assert_eq!(spec.replicas_max, Some(1));
    let recipe = recipe_of(&llm(&[]));
    assert_eq!(recipe.place.address, "http://ray-head:8265");
    assert_eq!(recipe.place.prefix(), "model-pool.pool.r");
    assert_eq!(recipe.head.host, "ray-head");
    let ServeApplication::Llm { source, .. } = recipe.application else {
        panic!("no application of ray.serve.llm");
    };
    assert_eq!(source, "org/model");
}

#[test]
fn an_address_is_normalized_to_give_each_ray_a_single_writer() {
    for (written, address) in [
        ("http://ray-head:8265", "http://ray-head:8265"),
        ("HTTP://Ray-Head:8265//", "http://ray-head:8265"),
        ("http://RAY-HEAD:80/", "http://ray-head"),
        ("https://ray-head:443/ray/", "https://ray-head/ray"),
        ("http://127.1:8265", "http://127.0.0.1:8265"),
        ("http://[::0001]:8265/", "http://[::1]:8265"),
    ] {
        let recipe = recipe_of(&llm(&[("engine_config.address", json!(written))]));
        assert_eq!(recipe.place.address, address, "{written}");
        let mut config = Config::default();
        config.cluster.ray.address = Some(written.to_owned());
        let without = json!({"engine_config": {"model_id": "a", "type": "RayServeEngine"}});
        let entry = from(&without, Source::File("ray.yaml".into()), &config).unwrap();
        let place = &entry.recipe.ray_serve().unwrap().place;
        assert_eq!(place.address, address, "{written}");
    }
}

#[test]
fn the_address_defaults_to_that_of_the_configured_cluster() {
    let mut config = Config::default();
    config.cluster.name = "lab".to_owned();
    let without = json!({"engine_config": {"model_id": "a", "type": "RayServeEngine"}});
    let source = || Source::File("ray.yaml".into());
    let error = from(&without, source(), &config).unwrap_err();
    assert_has(&error, &["engine_config.address", "cluster.ray.address"]);
    config.cluster.ray.address = Some("http://head:8265".to_owned());
    let entry = from(&without, source(), &config).unwrap();
    let place = &entry.recipe.ray_serve().unwrap().place;
    assert_eq!(place.prefix(), "model-pool.lab.r");
    assert!(!place.is_of_model);
}

#[test]
fn gpus_become_tensor_and_pipeline_parallelism_across_machines() {
    let gpus = ("pool_config.gpus_per_replica", json!(16));
    assert_eq!(kwargs_of(&llm(&[])), json!({}));
    assert_eq!(
        kwargs_of(&llm(std::slice::from_ref(&gpus))),
        json!({"tensor_parallel_size": 16})
    );
    let pipeline = |degree: u32| {
        (
            "engine_config.engine_kwargs.pipeline_parallel_size",
            json!(degree),
        )
    };
    assert_eq!(
        kwargs_of(&llm(&[gpus.clone(), pipeline(2)])),
        json!({"pipeline_parallel_size": 2, "tensor_parallel_size": 8})
    );
    let error = read(&llm(&[gpus.clone(), pipeline(3)])).unwrap_err();
    assert_has(&error, &["pipeline_parallel_size", "16 GPUs"]);
    let tensor = ("engine_config.engine_kwargs.tensor_parallel_size", json!(4));
    let error = read(&llm(&[gpus, tensor])).unwrap_err();
    assert_has(
        &error,
        &["tensor_parallel_size", "pool_config.gpus_per_replica"],
    );
    let context = ("engine_config.max_total_tokens", json!(4096));
    assert_eq!(kwargs_of(&llm(&[context])), json!({"max_model_len": 4096}));
}

#[test]
fn replicas_are_limited_by_max_replicas_or_by_autoscaling() {
    let max = |document: &Value| recipe_of(document).replicas_max;
    assert_eq!(max(&llm(&[])), 1);
    let scaling = (
        "deployment_config.autoscaling_config",
        json!({"min_replicas": 1, "max_replicas": 6}),
    );
    assert_eq!(max(&llm(std::slice::from_ref(&scaling))), 6);
    let most = ("pool_config.max_replicas", json!(2));
    let both = llm(&[scaling, most]);
    assert_eq!(max(&both), 2);
    let scaling = read(&both).unwrap().scaling.unwrap();
    assert_eq!((scaling.least, scaling.most), (1, 2));
    let error = read(&llm(&[("pool_config.max_replicas", json!(65))])).unwrap_err();
    assert_has(&error, &["pool_config.max_replicas", "allowed: 1 to 64"]);
}

/// An application | a key | its value | parts of the message
const MEANINGLESS: &str = r#"
    llm | pool_config.memory_gib | 3 | pool_config.memory_gib | does not see its memory
    llm | pool_config.devices | {"kinds": ["H100"]} | pool_config.devices | accelerator_type
    llm | engine_config.url | "http://x/v1" | engine_config.url | engine_config.proxy
    llm | engine_config.command | ["x"] | engine_config.command
    llm | engine_config.args | {"x": 1} | engine_config.args | engine_kwargs
    llm | engine_config.accelerator_type | "H 100" | engine_config.accelerator_type | A100-40G
    llm | engine_config.model_path | "weights" | engine_config.model_path | absolute
    llm | engine_config.proxy | "ray-head" | engine_config.proxy
    llm | engine_config.address | "ray-head" | engine_config.address | http://ray-head:8265
    own | engine_config.import_path | "no colon" | engine_config.import_path | my_module:build
    own | engine_config.engine_kwargs | {"x": 1} | engine_config.engine_kwargs | engine_config.args
    own | pool_config.gpus_per_replica | 2 | pool_config.gpus_per_replica | ray_actor_options
    own | engine_config.deployments | [1] | engine_config.deployments[0]
"#;

#[test]
fn keys_without_meaning_for_ray_serve_are_refused_with_advice() {
    for row in table::rows(MEANINGLESS) {
        let change = [(row[1], table::json(row[2]))];
        let document = match row[0] {
            "own" => own(&change),
            _ => llm(&change),
        };
        assert_has(&read(&document).unwrap_err(), &row[3..]);
    }
}

#[test]
fn the_ray_serve_example_of_the_manual_loads() {
    let folder = super::repository("docs/examples");
    let text = std::fs::read_to_string(folder.join("ray-serve.yaml")).unwrap();
    let models = tempfile::tempdir().unwrap();
    std::fs::write(models.path().join("ray-serve.yaml"), text).unwrap();
    let mut config = Config::default();
    config.catalog.models_dir = models.path().to_owned();
    let (catalog, warnings) = model_pool::catalog::Catalog::load(&config).unwrap();
    assert_eq!(warnings, Vec::new());
    let entry = catalog.entries().values().next().unwrap();
    assert_eq!(entry.recipe.ray_serve().unwrap().replicas_max, 2);
}

#[test]
fn a_ray_serve_model_registered_over_the_api_may_not_name_another_ray() {
    let mut config = Config::default();
    config.cluster.ray.address = Some("http://head:8265".to_owned());
    let error = from(&llm(&[]), Source::Registered, &config).unwrap_err();
    assert_has(&error, &["engine_config.address", "cluster.ray"]);
    let without = json!({"engine_config": {"model_id": "a", "type": "RayServeEngine"}});
    assert!(from(&without, Source::Registered, &config).is_ok());
}

#[test]
fn ray_serve_keys_are_refused_with_other_engines() {
    for (key, value) in [
        ("address", json!("http://ray-head:8265")),
        ("import_path", json!("a:b")),
        ("accelerator_type", json!("H100")),
        ("args", json!({"x": 1})),
    ] {
        let command = json!({"engine_config": {"model_id": "a", "type": "CommandEngine",
            "command": ["x", "{{ port }}"], key: value}});
        let error = read(&command).unwrap_err();
        assert_has(
            &error,
            &["RayServeEngine only", &format!("engine_config.{key}")],
        );
    }
    let command = json!({"engine_config": {"model_id": "a", "type": "CommandEngine",
        "command": ["x", "{{ port }}"]}, "pool_config": {"max_replicas": 2}});
    assert_has(&read(&command).unwrap_err(), &["pool_config.max_replicas"]);
}
