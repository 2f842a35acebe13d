//! Search results of the hub: the table of `pull --search`, and similar names for a model that does not exist.

use std::time::Duration;

use catalog::Fetch;
use source::{HubModel, Sources};
use terminal::row;
use terminal::style::Style;
use terminal::table::{column, list};

use super::End;

/// Similar names are only a hint, so the wait for them is short.
const SIMILAR_TIME_MAX: Duration = Duration::from_secs(5);
const SIMILAR_MAX: usize = 5;
/// With this width, the longest form and task give a line of 80 columns.
const NAME_COLUMNS: usize = 32;

pub(super) fn print(words: &str, found: Vec<HubModel>) -> Result<(), End> {
    let Some(first) = found.first() else {
        return Err(End::Failed(format!(
            "the hub has no model with {words:?} in its name; try fewer or shorter words"
        )));
    };
    let next = format!("Next: model-pool pull {}", first.id);
    print!("{}", table(&found, Style::of_stdout()));
    println!("{next}");
    Ok(())
}

fn table(found: &[HubModel], style: Style) -> String {
    let columns = [
        column("").shortens_to(NAME_COLUMNS),
        column("").right(),
        column(""),
        column("").leaves(1),
        column("").leaves(2),
    ];
    let row = |model: &HubModel| {
        row![
            &model.id,
            short(model.downloads),
            model.form.unwrap_or(""),
            model.task.as_deref().unwrap_or(""),
            if model.is_gated { "gated" } else { "" },
        ]
    };
    list(&columns, found.iter().map(row), 0, style)
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
        let found = [model("org/short", true), model(&long, false)];
        let shown = table(&found, Style::terminal(80));
        let first = shown.lines().next().expect("a line");
        assert!(
            first.ends_with("safetensors  sentence-similarity  gated"),
            "{first:?}"
        );
        assert!(
            shown.lines().all(|line| line.chars().count() <= 80),
            "{shown}"
        );
        assert!(table(&found, Style::PLAIN).contains(&long));
    }
}
