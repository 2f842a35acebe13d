//! LoRA adapters on the real engine: one from its command line, and others that are found at run time.

use serde_json::{Value, json};
use support::adapters::{TINY_GUIDE, write_sized};

use super::rig::*;

#[test]
fn adapters_are_served_from_the_start_and_loaded_by_name_at_run_time() {
    let Some(environment) = environment() else {
        return;
    };
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    let adapter = |name: &str, seed| write_sized(&path(name), "real", TINY_GUIDE, 8, seed);
    adapter("named", 1);
    adapter("real:one", 2);
    adapter("real:two", 3);
    let engine = format!(
        "lora_adapters: [{{name: \"polite\", path: {:?}}}]",
        path("named").display().to_string()
    );
    let more = format!(
        "lora_config: {{dynamic_lora_loading_path: {:?}, max_num_adapters_per_replica: 1, max_lora_rank: 8}}\n",
        folder.path().display().to_string()
    );
    let base = demo();
    let model = RealModel {
        pool: "keep_hot: 1h",
        engine: &engine,
        more: &more,
        ..RealModel::new(&environment, "real", &base)
    };
    let pool = pool(&[model.file()]);
    load(&pool, "real");
    let text = |name: &str| {
        let body = json!({
            "model": name, "max_tokens": 12, "temperature": 0,
            "messages": [{"role": "user", "content": "What is keep-hot?"}],
        });
        let response = ask(&pool, CHAT, &body);
        assert_eq!(response["model"], name, "{response}");
        let text = response["choices"][0]["message"]["content"].as_str();
        text.unwrap_or_else(|| panic!("{response}")).to_owned()
    };
    let names = ["real", "polite", "real:one", "real:two"];
    let texts = names.map(text);
    for (index, one) in texts.iter().enumerate() {
        assert!(!texts[..index].contains(one), "{names:?}: {texts:?}");
    }
    // Only one dynamic adapter fits: the first is loaded again, and gives the same output.
    assert_eq!(text("real:one"), texts[2]);
    let (status, response) = pool.post(CHAT, &short("real:three").to_string());
    assert_eq!(status, 404, "{response}");
    let (_, listed, _) = pool.request("GET", "/v1/models", "", None);
    let listed: Value = serde_json::from_str(&listed).expect("JSON");
    let listed = listed["data"].as_array().expect("a list");
    for name in &names[1..] {
        let one = listed.iter().find(|model| model["id"] == *name);
        assert_eq!(
            one.map(|model| &model["parent"]),
            Some(&json!("real")),
            "{name}"
        );
    }
}
