//! GGUF files of a hub: the choice of file, and the error if it is ambiguous.

use model_pool::catalog::complete_below;
use serde_json::{Value, json};
use support::hub::COMMIT;

use super::{Lab, below, weights};

#[tokio::test]
async fn of_several_gguf_files_only_the_named_one_is_fetched_with_all_its_parts() {
    let lab = Lab::new();
    let files = [
        ("README.md", b"text".to_vec()),
        ("config.json", b"{}".to_vec()),
        ("big/m-Q8_0-00001-of-00002.gguf", weights(1)),
        ("big/m-Q8_0-00002-of-00002.gguf", weights(2)),
        ("m-Q4_K_M.gguf", weights(3)),
        ("mmproj-m.gguf", weights(4)),
    ];
    lab.hub.add("lab/many", &files);
    let wanted = |more: Value| {
        let mut engine = json!({"hf_model_id": "lab/many"});
        let own = engine.as_object_mut().unwrap();
        own.extend(more.as_object().unwrap().clone());
        lab.wanted_with(engine)
    };
    let named = wanted(json!({"gguf_file": "big/m-Q8_0-00001-of-00002.gguf"}));
    lab.fetch(&named).await.expect("fetched");
    assert!(named.is_here());
    let there: Vec<String> = below(&named.folder().canonicalize().unwrap())
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    let parts = [
        "big/m-Q8_0-00001-of-00002.gguf",
        "big/m-Q8_0-00002-of-00002.gguf",
    ];
    assert_eq!(there, [parts[0], parts[1], "config.json"]);
    assert!(named.model_path().ends_with(parts[0]) && named.model_path().is_file());

    // Without a name, the only model at the top level is downloaded.
    let only = wanted(json!({}));
    lab.fetch(&only).await.expect("fetched");
    assert!(only.model_path().join("m-Q4_K_M.gguf").is_file());
    assert!(!only.model_path().join("mmproj-m.gguf").exists());
    assert_ne!(only.folder(), named.folder());
    let absent = lab
        .fetch(&wanted(json!({"gguf_file": "m-Q2_K.gguf"})))
        .await;
    let message = absent.expect_err("it is not there").to_string();
    for word in ["gguf_file", "m-Q4_K_M.gguf", "big/m-Q8_0-of-00002.gguf"] {
        assert!(message.contains(word), "{message}");
    }

    lab.hub
        .add("lab/two", &[("a.gguf", weights(1)), ("b.gguf", weights(2))]);
    let unsaid = lab.wanted_with(json!({"hf_model_id": "lab/two"}));
    let message = lab.fetch(&unsaid).await.expect_err("which?").to_string();
    assert!(
        message.contains("gguf_file") && message.contains("a.gguf, b.gguf"),
        "{message}"
    );
}

#[tokio::test]
async fn a_quantization_suffix_selects_the_file_in_any_folder() {
    let lab = Lab::new();
    let files = [
        ("config.json", b"{}".to_vec()),
        ("model.safetensors", weights(9)),
        ("m-Q4_K_M.gguf", weights(1)),
        ("UD-Q8_0/m-UD-Q8_0-00001-of-00002.gguf", weights(2)),
        ("UD-Q8_0/m-UD-Q8_0-00002-of-00002.gguf", weights(3)),
        ("a-F16.gguf", weights(4)),
        ("b-fp16.gguf", weights(5)),
    ];
    lab.hub.add("lab/many", &files);
    let wanted = |name: &str| lab.wanted_with(json!({"hf_model_id": format!("lab/many:{name}")}));
    let there = |fetch: &model_pool::catalog::Fetch| -> Vec<String> {
        let folder = fetch.folder().canonicalize().unwrap();
        let paths = below(&folder).into_iter();
        paths.map(|path| path.display().to_string()).collect()
    };
    let plain = wanted("q4_k_m");
    lab.fetch(&plain).await.expect("fetched");
    assert_eq!(there(&plain), ["config.json", "m-Q4_K_M.gguf"]);
    let parts = wanted("Q8_0");
    lab.fetch(&parts).await.expect("fetched");
    assert!(parts.is_here() && plain.is_here());
    let names = [
        "m-UD-Q8_0-00001-of-00002.gguf",
        "m-UD-Q8_0-00002-of-00002.gguf",
    ];
    assert_eq!(there(&parts), ["config.json", names[0], names[1]]);
    for (name, words) in [
        ("F16", ["a-F16.gguf, b-fp16.gguf", "gguf_file"]),
        ("Q2_K", ["F16, Q4_K_M, UD-Q8_0", "Q2_K"]),
    ] {
        let message = lab.fetch(&wanted(name)).await.expect_err(name).to_string();
        assert!(words.iter().all(|word| message.contains(word)), "{message}");
    }
}

/// A node with one quantization gets no request for the other, and does not count as having it.
#[tokio::test]
async fn two_quantizations_of_a_repository_are_listed_as_two_sets_of_weights() {
    let lab = Lab::new();
    let files = [
        ("config.json", b"{}".to_vec()),
        ("m-Q4_K_M.gguf", weights(1)),
        ("Q8_0/m.gguf", weights(2)),
    ];
    lab.hub.add("lab/many", &files);
    let four = lab.wanted_with(json!({"hf_model_id": "lab/many:Q4_K_M"}));
    lab.fetch(&four).await.expect("fetched");
    let four_id = four.listing().expect("it is here").id();
    assert_eq!(complete_below(&four.notes), [four_id.as_str()]);
    let eight = lab.wanted_with(json!({"hf_model_id": "lab/many:Q8_0"}));
    lab.fetch(&eight).await.expect("fetched");
    let eight_id = eight.listing().expect("it is here").id();
    assert_ne!(four_id, eight_id);
    let state = format!("models--lab--many@{COMMIT}+");
    assert!(four_id.starts_with(&state) && eight_id.starts_with(&state));
    let mut both = [four_id, eight_id.clone()];
    both.sort();
    assert_eq!(complete_below(&four.notes), both);
    // Selected by name, it is the same file.
    let named = json!({"hf_model_id": "lab/many", "gguf_file": "Q8_0/m.gguf"});
    let named = lab.wanted_with(named);
    lab.fetch(&named).await.expect("fetched");
    assert_eq!(named.listing().expect("it is here").id(), eight_id);
    assert_eq!(complete_below(&four.notes), both);
}
