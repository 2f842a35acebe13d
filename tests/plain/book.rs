//! The documentation as a book: it contains every page, and every link leads to a file and a heading.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

use support::root;

fn read(path: &Path) -> String {
    fs::read_to_string(root().join(path))
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The Markdown files in the repository's root, in `docs`, and in its four folders.
fn pages() -> Vec<PathBuf> {
    let mut found = Vec::new();
    for folder in [
        "",
        "docs",
        "docs/start",
        "docs/guides",
        "docs/reference",
        "docs/internals",
    ] {
        for entry in fs::read_dir(root().join(folder)).unwrap() {
            let name = PathBuf::from(entry.unwrap().file_name());
            if name.extension().is_some_and(|extension| extension == "md") {
                found.push(Path::new(folder).join(name));
            }
        }
    }
    found.sort();
    assert!(found.len() > 30, "{found:?}");
    found
}

/// Lines outside code blocks.
fn prose(text: &str) -> Vec<&str> {
    let mut is_code = false;
    let mut lines = Vec::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        } else if !is_code {
            lines.push(line);
        }
    }
    lines
}

/// Link targets in a line, without those in code.
fn links(line: &str) -> Vec<String> {
    let text: String = line.split('`').step_by(2).collect();
    let parts = text.split("](").skip(1);
    let targets = parts.filter_map(|part| part.split([')', ' ']).next());
    targets.map(str::to_owned).collect()
}

/// Anchors of a page's headings, in the form of GitHub and mdBook.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut times: BTreeMap<String, u32> = BTreeMap::new();
    let mut anchors = BTreeSet::new();
    for line in prose(text) {
        let title = line.trim_start_matches('#');
        if title.len() == line.len() || !title.starts_with(' ') {
            continue;
        }
        let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
        let slug: String = title.trim().to_lowercase().chars().filter(kept).collect();
        let slug = slug.replace(' ', "-");
        let nth = times.entry(slug.clone()).or_default();
        anchors.insert(match *nth {
            0 => slug,
            nth => format!("{slug}-{nth}"),
        });
        *nth += 1;
    }
    anchors
}

/// The target path of a link, relative to the repository.
fn resolved(page: &Path, link: &str) -> PathBuf {
    let mut path = page.parent().unwrap_or(Path::new("")).to_owned();
    for part in Path::new(link).components() {
        match part {
            Component::ParentDir => assert!(path.pop(), "{}: {link}", page.display()),
            Component::Normal(name) => path.push(name),
            _ => {}
        }
    }
    path
}

/// The problem with a link, if any.
fn problem(page: &Path, link: &str) -> Option<String> {
    let is_remote = link.contains("://") || link.starts_with("mailto:");
    if is_remote {
        return None;
    }
    let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
    let path = match file {
        "" => page.to_owned(),
        file => resolved(page, file),
    };
    if !root().join(&path).exists() {
        return Some(format!("{}: {link}: there is no such file", page.display()));
    }
    let is_page = path.extension().is_some_and(|extension| extension == "md");
    let is_missing = is_page && !anchor.is_empty() && !anchors(&read(&path)).contains(anchor);
    is_missing.then(|| format!("{}: {link}: there is no such heading", page.display()))
}

#[test]
fn every_link_of_the_documentation_leads_to_a_file_and_a_heading() {
    let mut problems = Vec::new();
    let mut count = 0;
    for page in pages() {
        let text = read(&page);
        for link in prose(&text).into_iter().flat_map(links) {
            count += 1;
            problems.extend(problem(&page, &link));
        }
    }
    assert!(count > 200, "only {count} links were found");
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// Text that a browser would interpret as tags and hide.
fn tags(line: &str) -> Vec<&str> {
    let text = line.split('`').step_by(2);
    let starts = text.flat_map(|text| text.split('<').skip(1));
    let is_tag = |rest: &&str| {
        let is_address = rest.starts_with("http://") || rest.starts_with("https://");
        !is_address
            && rest.starts_with(|letter: char| letter.is_ascii_alphabetic() || letter == '/')
    };
    starts.filter(is_tag).collect()
}

#[test]
fn no_page_has_a_placeholder_that_a_browser_takes_for_a_tag() {
    let mut problems = Vec::new();
    for page in pages() {
        let text = read(&page);
        for line in prose(&text) {
            let found = tags(line).into_iter();
            problems.extend(found.map(|tag| format!("{}: <{tag}", page.display())));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert_eq!(
        tags("a <FILE> and `<CODE>`, <https://example.org>, 1 < 2"),
        ["FILE> and "]
    );
}

#[test]
fn a_broken_link_is_found() {
    let page = Path::new("docs/guides/keys.md");
    assert_eq!(problem(page, "../reference/rules.md"), None);
    assert_eq!(problem(page, "https://example.org/x#y"), None);
    assert!(problem(page, "no-such-page.md").is_some());
    assert!(problem(page, "../reference/rules.md#no-such-heading").is_some());
    assert_eq!(
        links("[a](b.md#c) and `[no](d)`, [e](f \"g\")"),
        ["b.md#c", "f"]
    );
    assert!(anchors("# A `b`: c\n## A `b`: c\n").contains("a-b-c-1"));
}

#[test]
fn every_page_is_listed_once_in_the_book_under_its_own_title() {
    let summary = read(Path::new("docs/SUMMARY.md"));
    let listed: Vec<String> = prose(&summary).into_iter().flat_map(links).collect();
    let unique: BTreeSet<&String> = listed.iter().collect();
    assert_eq!(unique.len(), listed.len(), "a page is listed twice");
    let in_docs = pages().into_iter().filter_map(|page| {
        let name = page.strip_prefix("docs").ok()?.to_str()?.to_owned();
        (name != "SUMMARY.md").then_some(name)
    });
    let pages: BTreeSet<String> = in_docs.collect();
    assert_eq!(listed.into_iter().collect::<BTreeSet<_>>(), pages);
    // mdBook takes the titles from the summary: they begin like the pages' titles.
    for line in summary.lines() {
        let Some((title, file)) = line
            .trim_start_matches("- ")
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(')')?.split_once("]("))
        else {
            continue;
        };
        let text = read(&Path::new("docs").join(file));
        let heading = text.lines().next().unwrap_or_default();
        assert!(
            heading.starts_with(&format!("# {title}")),
            "{file}: {heading} and {title}"
        );
    }
}
