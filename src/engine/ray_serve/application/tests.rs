//! Names, configurations and endpoints of applications.

use std::collections::BTreeMap;
use std::time::Duration;

use super::*;
use catalog::Secret;

fn place() -> RayPlace {
    RayPlace {
        address: "http://ray-head:8265".to_owned(),
        token_file: None,
        timeout: Duration::from_secs(5),
        is_of_model: true,
        pool: "lab".to_owned(),
    }
}

fn url(host: &str, port: u16, prefix: &str) -> RemoteUrl {
    RemoteUrl {
        https: false,
        host: host.to_owned(),
        port,
        prefix: prefix.to_owned(),
    }
}

fn recipe(application: ServeApplication) -> RayServeRecipe {
    RayServeRecipe {
        place: place(),
        head: url("ray-head", 8265, ""),
        application,
        env: BTreeMap::from([("HF_HOME".to_owned(), Secret("/scratch".to_owned()))]),
        runtime_env: Map::from_iter([("working_dir".to_owned(), json!("s3://x/code.zip"))]),
        proxy: None,
        served_model_name: None,
        key: None,
        headers: BTreeMap::new(),
        health_path: "/models".to_owned(),
        context: None,
        replicas_max: 1,
    }
}

fn config_of(recipe: &RayServeRecipe) -> Value {
    let config = config(recipe, "model-pool.lab.r7", "org/model", "ray_serve 0a").expect("JSON");
    serde_json::from_str(config.get()).expect("JSON")
}

#[test]
fn the_application_name_contains_the_replica_and_parses_back() {
    assert_eq!(name(&place(), ReplicaId(7)), "model-pool.lab.r7");
    assert_eq!(
        replica_of(&place(), "model-pool.lab.r7"),
        Some(ReplicaId(7))
    );
    for other in [
        "model-pool.lab2.r7",
        "model-pool.lab.rx",
        "theirs",
        "model-pool.lab.r",
    ] {
        assert_eq!(replica_of(&place(), other), None, "{other}");
    }
}

#[test]
fn a_ray_serve_llm_application_has_one_model_and_names_its_owner() {
    let config = config_of(&recipe(ServeApplication::Llm {
        source: "org/weights".to_owned(),
        engine_kwargs: Map::from_iter([("tensor_parallel_size".to_owned(), json!(2))]),
        accelerator_type: Some("H100".to_owned()),
        seats: 16,
    }));
    assert_eq!(
        config,
        json!({
            "name": "model-pool.lab.r7",
            "route_prefix": "/model-pool.lab.r7",
            "runtime_env": {
                "working_dir": "s3://x/code.zip",
                "env_vars": {
                    "HF_HOME": "/scratch",
                    "MODEL_POOL_MODEL": "org/model",
                    "MODEL_POOL_ARGUMENTS": "ray_serve 0a",
                },
            },
            "import_path": "ray.serve.llm:build_openai_app",
            "args": {"llm_configs": [{
                "model_loading_config": {"model_id": "org/model", "model_source": "org/weights"},
                "engine_kwargs": {"tensor_parallel_size": 2},
                "deployment_config": {"num_replicas": 1, "max_ongoing_requests": 16},
                "accelerator_type": "H100",
            }]},
        })
    );
}

#[test]
fn a_site_application_gets_its_arguments_unchanged() {
    let config = config_of(&recipe(ServeApplication::Own {
        import_path: "lab.app:build".to_owned(),
        args: Map::from_iter([("size".to_owned(), json!("small"))]),
        deployments: vec![json!({"name": "Chat", "ray_actor_options": {"num_gpus": 1}})],
    }));
    assert_eq!(config["import_path"], "lab.app:build");
    assert_eq!(config["args"], json!({"size": "small"}));
    assert_eq!(config["deployments"][0]["ray_actor_options"]["num_gpus"], 1);
}

#[test]
fn requests_are_sent_below_the_applications_route_on_the_proxy() {
    let own = |proxy: Option<RemoteUrl>| {
        let application = ServeApplication::Own {
            import_path: "a:b".to_owned(),
            args: Map::new(),
            deployments: Vec::new(),
        };
        let recipe = RayServeRecipe {
            proxy,
            ..recipe(application)
        };
        endpoint(&recipe, "model-pool.lab.r7", 8001, None).to_string()
    };
    assert_eq!(own(None), "http://ray-head:8001/model-pool.lab.r7/v1");
    assert_eq!(
        own(Some(url("proxy.example.org", 80, "/serve"))),
        "http://proxy.example.org/serve/model-pool.lab.r7/v1"
    );
}
