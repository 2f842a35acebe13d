//! Search results of the hub: the table of `pull --search`, and similar names for a model that does not exist.

use std::time::Duration;

use catalog::Fetch;
use source::{HubModel, Sources};

use super::End;

/// Similar names are only a hint, so the wait for them is short.
const SIMILAR_TIME_MAX: Duration = Duration::from_secs(5);
const SIMILAR_MAX: usize = 5;
/// With this width, the longest form and task give a line of 80 columns. Longer names shift the columns to their right.
const NAME_WIDTH_MAX: usize = 32;

pub(super) fn print(words: &str, found: Vec<HubModel>) -> Result<(), End> {
    let Some(first) = found.first() else {
        return Err(End::Failed(format!(
            "the hub has no model with {words:?} in its name; try fewer or shorter words"
        )));
    };
    let next = format!("Next: model-pool pull {}", first.id);
    print!("{}", table(&found));
    println!("{next}");
    Ok(())
}

fn table(found: &[HubModel]) -> String {
    let width = |text: fn(&HubModel) -> &str| found.iter().map(|model| text(model).len()).max();
    let name_width = width(|model| &model.id).unwrap_or(0).min(NAME_WIDTH_MAX);
    let form_width = width(form).unwrap_or(0);
    let mut table = String::new();
    for model in found {
        let task = model.task.as_deref().unwrap_or_default();
        let gated = if model.is_gated { "gated" } else { "" };
        let line = format!(
            "{:name_width$}  {:>6}  {:form_width$}  {task} {gated}",
            model.id,
            short(model.downloads),
            form(model),
        );
        table.push_str(line.trim_end());
        table.push('\n');
    }
    table
}

fn form(found: &HubModel) -> &str {
    found.form.unwrap_or("")
}

/// Formats the downloads of a month: `9.3M`.
fn short(count: u64) -> String {
    match count {
        0..1_000 => count.to_string(),
        1_000..1_000_000 => format!("{:.1}k", count as f64 / 1e3),
        _ => format!("{:.1}M", count as f64 / 1e6),
    }
}

/// A hint for a model that the hub does not have: other models with a similar name. Empty if there are none, or the hub cannot be
/// queried.
pub(super) async fn similar(sources: &Sources, missing: &Fetch) -> String {
    let name = missing.id.rsplit('/').next().unwrap_or_default();
    let family = name.split(['-', '_']).next().unwrap_or_default();
    let search = async {
        for words in [name, family] {
            let found = sources.search(words, SIMILAR_MAX, missing).await.ok()?;
            if !found.is_empty() {
                let names: Vec<String> = found.into_iter().map(|model| model.id).collect();
                let names = names.join(", ");
                return Some(format!(
                    ". The hub has: {names}; `model-pool pull --search {words}` shows more"
                ));
            }
        }
        None
    };
    let found = tokio::time::timeout(SIMILAR_TIME_MAX, search).await;
    found.ok().flatten().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn downloads_are_short_and_long_names_do_not_widen_the_table() {
        assert_eq!(
            [7, 1_234, 9_300_000].map(short),
            ["7", "1.2k", "9.3M"].map(str::to_owned)
        );
        let model = |id: &str, is_gated| HubModel {
            id: id.to_owned(),
            downloads: 1,
            task: Some("sentence-similarity".to_owned()),
            form: Some("safetensors"),
            is_gated,
        };
        let long = "org/".to_owned() + &"x".repeat(60);
        let table = table(&[model("org/short", true), model(&long, false)]);
        let first = table.lines().next().expect("a line");
        assert!(first.len() <= 80, "{first:?}");
        assert!(
            first.ends_with("safetensors  sentence-similarity gated"),
            "{first:?}"
        );
    }
}
