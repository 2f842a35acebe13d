//! Keys of `engine_config` for budgets and sources: their effects, and errors that name the key.

use model_pool::catalog::{Catalog, CatalogError, LaunchContext, Recipe, Warning};
use model_pool::config::Config;
use model_pool::pool::Bytes;
use support::table::rows_of;

fn load_text(text: &str) -> (Catalog, Vec<Warning>, Vec<CatalogError>) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("model.yaml");
    std::fs::write(&file, text).unwrap();
    let mut config = Config::default();
    config.catalog.model_reference = folder.path().join("none.json");
    config.state.dir = folder.path().join("state");
    Catalog::load_from(&[file], &config).unwrap()
}

#[test]
fn the_budgets_of_a_scheduler_reach_the_embedded_engine_and_their_order_is_checked() {
    let file = |policy: &str| {
        format!(
            "engine_config:\n  model_id: a\n  type: CandleEngine\n  model_path: demo/models/tiny-chat\n  scheduler:\n    policy: {{type: QuotaBasedTaskSelectionPolicy, {policy}}}\n"
        )
    };
    let (catalog, warnings, errors) = load_text(&file(
        "max_total_tokens: 128, max_input_length: 100, max_batch_prefill_tokens: 200, max_batch_total_tokens: 512, waiting_served_ratio: 1.2",
    ));
    assert!(errors.is_empty(), "{errors:?}");
    let Recipe::Candle(recipe) = &catalog.get("a").unwrap().recipe else {
        panic!("another engine");
    };
    let budgets = recipe.budgets;
    assert_eq!(recipe.context, Some(128));
    assert_eq!(
        (budgets.input, budgets.prefill, budgets.total),
        (Some(100), Some(200), Some(512))
    );
    let notes: Vec<String> = warnings.iter().map(ToString::to_string).collect();
    assert!(
        notes
            .iter()
            .all(|note| !note.contains("waiting_served_ratio")),
        "{notes:?}"
    );
    let joining = budgets
        .joining
        .map(|joining| (joining.served_ratio_milli, joining.steps));
    assert_eq!(
        joining,
        Some((1200, 20)),
        "with Aviary's own number of steps"
    );
    for (policy, words) in [
        (
            "max_input_length: 300, max_batch_prefill_tokens: 200",
            "300",
        ),
        ("max_total_tokens: 128, max_input_length: 128", "128"),
        ("max_total_tokens: 128, max_batch_total_tokens: 100", "100"),
    ] {
        let (_, _, errors) = load_text(&file(policy));
        let text = errors.first().map(ToString::to_string).unwrap_or_default();
        assert!(
            text.contains(words) && text.contains("line"),
            "{policy}: {text}"
        );
    }
}

/// An engine | its keys | a part of the message
const UNFETCHABLE: &str = r#"
    CandleEngine | hf_model_id: lab/a\n  s3_mirror_config: {bucket_uri: s3://b}\n  gcs_mirror_config: {bucket_uri: gs://b} | both given
    CandleEngine | hf_model_id: lab/a\n  s3_mirror_config: {bucket_uri: s3://b}\n  oci_artifact: oci://r.org/m:1 | both given
    CandleEngine | hf_model_id: lab/a\n  oci_artifact: r.org/m:1 | does not begin with oci://
    CandleEngine | oci_artifact: oci://r.org/m:1 | is missing
    CandleEngine | hf_model_id: lab/a\n  s3_mirror_config: {bucket_uri: gs://b} | must begin with s3://
    CandleEngine | hf_model_id: lab/a\n  gcs_mirror_config: {bucket_uri: "gs://b/../c"} | an invalid folder
    CandleEngine | hf_model_id: lab/a\n  s3_mirror_config: {bucket: s3://b} | bucket
    CandleEngine | hf_model_id: lab/a\n  s3_mirror_config: {bucket_uri: "s3://b/a", s3_sync_args: [--profile, x]} | `--profile` is not supported
    CandleEngine | hf_model_id: lab/a\n  s3_mirror_config: {bucket_uri: "s3://b/a", s3_sync_args: [--exclude, --include]} | --exclude needs a value
    CandleEngine | hf_model_id: lab/a\n  s3_mirror_config: {bucket_uri: "s3://b/a", s3_sync_args: [--endpoint-url, junk]} | begins with https://
    CandleEngine | hf_model_id: lab/a\n  s3_mirror_config: {bucket_uri: "s3://b/a", s3_sync_args: [--no-sign-request=1]} | is not supported
    CandleEngine | hf_model_id: lab/a\n  s3_mirror_config: {bucket_uri: "s3://b/a", s3_aws_credentials: {create_aws_credentials_url: "http://keys.example.org"}} | must begin with https://
    CandleEngine | hf_model_id: lab/a\n  s3_mirror_config: {bucket_uri: "s3://b/a", extra_files: [{bucket_uri: s3://b, destination_path: /etc/x}]} | is outside the folders
    CandleEngine | hf_model_id: lab/a\n  s3_mirror_config: {bucket_uri: "s3://b/a", extra_files: [{bucket_uri: s3://b, destination_path: ../x}]} | without `..`
    CandleEngine | hf_model_id: lab/a\n  s3_mirror_config: {bucket_uri: "s3://b/a", extra_files: [{bucket_uri: s3://b, destination_path: "$NO_SUCH_VARIABLE/x"}]} | NO_SUCH_VARIABLE is not set
    CandleEngine | hf_model_id: lab/a/b | not a name on the hub
    CandleEngine | hf_model_id: "lab/a\\u001b[31m" | not a name on the hub
    CandleEngine | hf_model_id: lab/a--b | not a name on the hub
    CandleEngine | hf_model_id: lab/a\n  revision: ../x | not a branch, tag or commit
    CandleEngine | hf_model_id: lab/a\n  fetch: engine | does not download weights itself
    LlamaCppEngine | hf_model_id: lab/a\n  fetch: pool | reads one GGUF file
    VLLMEngine | hf_model_id: lab/a\n  fetch: engine\n  s3_mirror_config: {bucket_uri: s3://b} | can only be fetched by the pool
"#;

#[test]
fn an_invalid_download_setting_is_refused_with_its_key() {
    let with = |engine: &str, more: &str| {
        format!("engine_config:\n  model_id: lab/a\n  type: {engine}\n  {more}\n")
    };
    for [engine, more, words] in rows_of(UNFETCHABLE) {
        let text = with(engine, more);
        let (_, _, errors) = load_text(&text);
        let error = errors.first().map(ToString::to_string).unwrap_or_default();
        assert!(error.contains(words), "{words}: {error}\n{text}");
        assert!(!error.contains('\u{1b}'), "{error:?}");
    }
    let quiet = "hf_model_id: lab/a\n  s3_mirror_config: {s3_sync_args: [--quiet]}";
    let (_, warnings, errors) = load_text(&with("CandleEngine", quiet));
    assert!(errors.is_empty(), "{errors:?}");
    let notes: Vec<String> = warnings.iter().map(ToString::to_string).collect();
    assert!(
        notes
            .iter()
            .any(|note| note.contains("neither bucket_uri nor extra_files")),
        "{notes:?}"
    );
}

/// A file | its text | a part of the message
const WRONG_ADAPTERS: &str = r#"
    c.yaml | base_model_id: lab/base\nmodel_id: lab/polite\nlora_path: /x\n | given twice
    d.yaml | base_model_id: lab/base\nmodel_id: x\n | set exactly one
    e.yaml | base_model_id: lab/base\nmodel_id: x\nlora_mirror_config: {bucket_uri: s3://b/x}\n | the pool does not fetch this base model
    f.yaml | base_model_id: lab/base\nmodel_id: "../x"\nlora_path: /x\n | a model's name is
    g.yaml | base_model_id: lab/base\nmodel_id: x\nlora_mirror: 1\n | or bucket_uri must give the adapter's location
"#;

#[test]
fn an_adapter_is_defined_by_a_key_of_its_base_or_by_a_separate_file() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let file = folder.path().join(name);
        std::fs::write(&file, text).unwrap();
        file
    };
    let base = write(
        "z-base.yaml",
        "engine_config:\n  model_id: lab/base\n  type: VLLMEngine\n  model_path: /srv/base\n  lora_adapters: [{name: lab/polite, path: /srv/polite}]\npool_config: {memory_gib: 10}\n",
    );
    let other = write(
        "a-adapter.yaml",
        "base_model_id: lab/base\nmodel_id: \"lab/base:terse:1\"\nlora_path: /srv/terse\ngeneration: {prompt_format: null}\n",
    );
    let mut config = Config::default();
    config.catalog.model_reference = folder.path().join("none.json");
    let load = |files: &[std::path::PathBuf]| Catalog::load_from(files, &config).unwrap();
    // In both reading orders.
    let (catalog, warnings, errors) = load(&[other.clone(), base.clone()]);
    assert!(errors.is_empty(), "{errors:?}");
    let notes: Vec<String> = warnings.iter().map(ToString::to_string).collect();
    assert!(
        notes.iter().all(|note| !note.contains("generation")),
        "{notes:?}"
    );
    let base_entry = catalog.get("lab/base").expect("the base");
    let own = base_entry.generation_of("lab/base:terse:1");
    assert_eq!(own.prompt, model_pool::catalog::Prompt::Disabled);
    for name in ["lab/polite", "lab/base:terse:1", "lab/base"] {
        let entry = catalog.get(name).expect(name);
        assert_eq!(entry.name, "lab/base");
        assert_eq!(entry.adapter(name).is_some(), name != "lab/base");
    }
    let Recipe::Server(recipe) = &catalog.get("lab/base").unwrap().recipe else {
        panic!("another engine");
    };
    let place = LaunchContext {
        weights: Some(Bytes(Bytes::GIB)),
        ..LaunchContext::example(Bytes(8 * Bytes::GIB))
    };
    let line = recipe.command(&place).unwrap().argv.join(" ");
    assert!(
        line.contains(
            "--enable-lora --lora-modules lab/polite=/srv/polite lab/base:terse:1=/srv/terse"
        ),
        "{line}"
    );
    for [name, text, words] in rows_of(WRONG_ADAPTERS) {
        let (catalog, _, errors) = load(&[base.clone(), write(name, text)]);
        let error = errors.first().map(ToString::to_string).unwrap_or_default();
        assert!(
            error.contains(words) && error.contains(name),
            "{words}: {error}"
        );
        assert!(catalog.get("lab/polite").is_some(), "the base is as it was");
    }
    // An adapter without its base model is left out, and others are served.
    let orphan = write(
        "b.yaml",
        "base_model_id: lab/bas\nmodel_id: x\nlora_path: /x\n",
    );
    let (catalog, warnings, errors) = load(&[base.clone(), orphan]);
    assert!(
        errors.is_empty() && catalog.get("x").is_none(),
        "{errors:?}"
    );
    let notes: Vec<String> = warnings.iter().map(ToString::to_string).collect();
    let words = "no file describes a model lab/bas; the closest is lab/base";
    assert!(notes.iter().any(|note| note.contains(words)), "{notes:?}");
    let (_, _, errors) = load_text(
        "engine_config: {model_id: a, type: CommandEngine, command: [x], lora_adapters: [{name: b, path: /b}]}\n",
    );
    assert!(
        errors[0].to_string().contains("lora_adapters"),
        "{errors:?}"
    );
}
