//! Measures reading and checking a thousand real model files. `cargo bench --bench catalog`.

use std::path::Path;
use std::time::Instant;

use model_pool::catalog::Catalog;
use model_pool::config::Config;

const FILES: usize = 1000;
const ROUNDS: usize = 10;

#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
fn main() {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/rayllm");
    let folder = tempfile::tempdir().expect("a folder");
    let mut texts = Vec::new();
    for release in ["v0.0.1", "v0.1.2", "v0.2.0", "v0.5.0"] {
        let listing = std::fs::read_dir(from.join(release)).expect("the fixtures");
        for file in listing.flatten() {
            let text = std::fs::read_to_string(file.path()).expect("a text");
            if !text.contains("enabled: false") {
                texts.push(text);
            }
        }
    }
    let mut bytes = 0;
    for nth in 0..FILES {
        let text = &texts[nth % texts.len()];
        // Gives each copy another name: the line of the id, in either form.
        let named: Vec<String> = text
            .lines()
            .map(|line| match line.trim_start().strip_prefix("model_id:") {
                Some(_) => {
                    let indent = &line[..line.len() - line.trim_start().len()];
                    format!("{indent}model_id: bench/model-{nth}")
                }
                None => line.to_owned(),
            })
            .collect();
        let text = named.join("\n");
        bytes += text.len();
        std::fs::write(folder.path().join(format!("{nth}.yaml")), text).expect("written");
    }
    let config = Config::default();
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let began = Instant::now();
        let (catalog, _, errors) =
            Catalog::load_from(&[folder.path().to_owned()], &config).expect("readable");
        times.push(began.elapsed().as_secs_f64() * 1000.0);
        assert!(errors.is_empty(), "{errors:?}");
        assert_eq!(catalog.entries().len(), FILES);
    }
    times.sort_by(f64::total_cmp);
    println!(
        "{FILES} model files of {} KiB in all: {:.0} ms in the median of {ROUNDS} rounds, {:.0} ms at most",
        bytes / 1024,
        times[ROUNDS / 2],
        times[ROUNDS - 1]
    );
}
