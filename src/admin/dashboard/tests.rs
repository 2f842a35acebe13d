//! Tests of the dashboard's embedded files: none is missing or unused, none violates the page's own content security policy, and
//! their total size is limited.

use std::collections::BTreeSet;
use std::io::Read;

use super::*;

/// Limit for all compressed files, in bytes.
const WEIGHT_MAX: usize = 150 * 1024;
/// Ways to turn text into markup or code.
const UNSAFE: [&str; 9] = [
    "innerHTML",
    "outerHTML",
    "insertAdjacentHTML",
    "dangerouslySetInnerHTML",
    "document.write",
    "eval(",
    "new Function",
    "createContextualFragment",
    "DOMParser",
];

fn text(file: &File) -> &'static str {
    std::str::from_utf8(file.plain).unwrap()
}

fn own_modules() -> impl Iterator<Item = &'static File> {
    let modules = FILES.iter().filter(|file| file.name.ends_with(".js"));
    modules.filter(|file| !file.name.starts_with("vendor/"))
}

/// The files that a module imports, as paths relative to the dashboard's folder.
fn imports(file: &File) -> Vec<String> {
    let mut found = Vec::new();
    for part in text(file).split("from").skip(1) {
        let part = part.trim_start();
        let Some(quote) = part
            .chars()
            .next()
            .filter(|quote| matches!(quote, '\'' | '"'))
        else {
            continue;
        };
        let Some((path, _)) = part[1..].split_once(quote) else {
            continue;
        };
        if !path.starts_with('.') {
            continue;
        }
        let mut folders: Vec<&str> = file.name.split('/').collect();
        folders.pop();
        for step in path.split('/') {
            match step {
                "." => {}
                ".." => assert!(folders.pop().is_some(), "{}: {path}", file.name),
                step => folders.push(step),
            }
        }
        found.push(folders.join("/"));
    }
    found
}

/// The files that the page links to.
fn linked() -> Vec<String> {
    let start = format!("\"dashboard/{VERSION}/");
    let links = text(&PAGE).split(&start).skip(1);
    links
        .map(|link| link.split('"').next().unwrap().to_owned())
        .collect()
}

#[test]
fn every_import_and_link_leads_to_a_file_and_every_file_is_reached() {
    let names: BTreeSet<String> = FILES.iter().map(|file| file.name.to_owned()).collect();
    let mut reached: BTreeSet<String> = BTreeSet::new();
    for link in linked() {
        assert!(names.contains(&link), "the page links to {link}");
        if !link.ends_with(".js") {
            reached.insert(link);
        }
    }
    let mut next = vec!["main.js".to_owned()];
    while let Some(name) = next.pop() {
        let file = FILES.iter().find(|file| file.name == name);
        let file = file.unwrap_or_else(|| panic!("a module imports {name}, which is not there"));
        if reached.insert(name) {
            next.extend(imports(file));
        }
    }
    assert_eq!(names, reached, "files that nothing uses");
    assert!(reached.len() > 20, "the walk finds too little: {reached:?}");
}

#[test]
fn every_name_that_is_imported_is_exported() {
    for file in own_modules() {
        for part in text(file).split("import {").skip(1) {
            let (names, rest) = part.split_once('}').unwrap();
            let from = rest.trim_start().strip_prefix("from").unwrap().trim_start();
            let path = from[1..].split('\'').next().unwrap();
            let target = path.rsplit('/').next().unwrap();
            let target = FILES.iter().find(|candidate| {
                candidate.name.ends_with(&format!("/{target}"))
                    && imports(file).contains(&candidate.name.to_owned())
            });
            let target = target.unwrap_or_else(|| panic!("{} imports {path}", file.name));
            for name in names
                .split(',')
                .map(str::trim)
                .filter(|name| !name.is_empty())
            {
                let name = name.split(" as ").next().unwrap();
                let exports = text(target);
                let kinds = ["function", "const", "class", "async function", "let"];
                let declared = kinds.iter().any(|kind| {
                    let words = format!("export {kind} {name}");
                    let mut found = exports.match_indices(&words);
                    found.any(|(at, declaration)| {
                        let after = exports[at + declaration.len()..].chars().next();
                        after.is_none_or(|letter| !letter.is_alphanumeric() && letter != '_')
                    })
                });
                let listed = exports.split("export").skip(1).any(|part| {
                    let list = part.trim_start().strip_prefix('{');
                    let list = list.and_then(|list| list.split('}').next());
                    list.is_some_and(|list| {
                        list.split(',')
                            .any(|item| item.trim().rsplit(" as ").next() == Some(name))
                    })
                });
                assert!(declared || listed, "{}: {name} of {path}", file.name);
            }
        }
    }
}

#[test]
fn the_page_has_no_inline_code_and_never_inserts_text_as_markup() {
    let page = text(&PAGE);
    assert!(!page.contains("{{"), "a placeholder is left");
    assert_eq!(page.matches("<script").count(), 1);
    assert!(page.contains("<script type=\"module\" src=\"dashboard/"));
    for forbidden in [
        "<style",
        " style=",
        "javascript:",
        "http://",
        "https://",
        "<base",
    ] {
        assert!(!page.contains(forbidden), "{forbidden}");
    }
    for handler in [" onclick=", " onload=", " onerror=", " oninput="] {
        assert!(!page.contains(handler), "{handler}");
    }
    for file in own_modules() {
        for word in UNSAFE {
            assert!(!text(file).contains(word), "{}: {word}", file.name);
        }
    }
    for file in FILES {
        for word in ["eval(", "new Function", "@import", "url("] {
            assert!(!text(file).contains(word), "{}: {word}", file.name);
        }
    }
}

/// Chromium 156 loses styles of elements that `moveBefore` moves (vendor/README.md).
#[test]
fn the_view_library_moves_no_element_with_move_before() {
    for file in FILES {
        assert!(!text(file).contains("moveBefore"), "{}", file.name);
    }
}

#[test]
fn no_other_server_is_contacted() {
    for file in own_modules() {
        let has_address = text(file).contains("://");
        assert!(!has_address, "{}: an address of a server", file.name);
    }
}

#[test]
fn the_page_is_small_and_its_compressed_form_decompresses_to_the_same_bytes() {
    let mut weight = PAGE.gzip.len();
    for file in FILES {
        let mut plain = Vec::new();
        let mut decoder = flate2::read::GzDecoder::new(file.gzip);
        decoder.read_to_end(&mut plain).unwrap();
        assert_eq!(plain, file.plain, "{}", file.name);
        weight += file.gzip.len();
    }
    println!("{} files, {weight} bytes compressed", FILES.len() + 1);
    assert!(weight <= WEIGHT_MAX, "{weight} of {WEIGHT_MAX} bytes");
}

#[test]
fn every_module_has_a_header_comment() {
    for file in own_modules() {
        assert!(text(file).starts_with("// "), "{} has no head", file.name);
    }
    for file in FILES.iter().filter(|file| file.name.ends_with(".css")) {
        assert!(text(file).starts_with("/* "), "{} has no head", file.name);
    }
}

fn with(name: axum::http::HeaderName, value: &str) -> HeaderMap {
    HeaderMap::from_iter([(name, HeaderValue::from_str(value).unwrap())])
}

#[test]
fn gzip_is_sent_only_to_clients_that_accept_it() {
    for (accept, takes) in [
        ("gzip, deflate, br", true),
        ("br;q=1, GZIP;q=0.5", true),
        ("*", true),
        ("gzip;q=0, *", false),
        ("*;q=0", false),
        ("identity", false),
        ("br", false),
        ("gzip;q=nonsense", false),
        ("", false),
    ] {
        assert_eq!(
            takes_gzip(&with(ACCEPT_ENCODING, accept)),
            takes,
            "{accept}"
        );
        let response = respond(&PAGE, ASK_AGAIN, &with(ACCEPT_ENCODING, accept));
        assert_eq!(response.headers().contains_key(CONTENT_ENCODING), takes);
        assert_eq!(response.headers()[VARY], "accept-encoding");
    }
    assert!(!takes_gzip(&HeaderMap::new()));
}

#[test]
fn a_client_with_the_current_version_gets_no_body() {
    let first = respond(&PAGE, ASK_AGAIN, &HeaderMap::new());
    assert_eq!(first.status(), StatusCode::OK);
    assert_eq!(first.headers()[CONTENT_TYPE], "text/html; charset=utf-8");
    assert_eq!(first.headers()[CACHE_CONTROL], "no-cache");
    assert!(!POLICY.contains("unsafe"));
    let tag = first.headers()[ETAG].to_str().unwrap();
    for (known, status) in [
        (tag.to_owned(), StatusCode::NOT_MODIFIED),
        (format!("\"other\", W/{tag}"), StatusCode::NOT_MODIFIED),
        ("*".to_owned(), StatusCode::NOT_MODIFIED),
        ("\"other\"".to_owned(), StatusCode::OK),
    ] {
        let response = respond(&PAGE, ASK_AGAIN, &with(IF_NONE_MATCH, &known));
        assert_eq!(response.status(), status, "{known}");
        assert_eq!(response.headers()[ETAG], tag);
    }
    let mut packed = with(ACCEPT_ENCODING, "gzip");
    packed.insert(IF_NONE_MATCH, HeaderValue::from_str(tag).unwrap());
    let packed = respond(&PAGE, ASK_AGAIN, &packed);
    assert_eq!(
        packed.status(),
        StatusCode::OK,
        "another form has another tag"
    );
}
