//! Replays `tests/stories/*.txt` through the pool and compares the transcripts. `UPDATE=1 cargo test --test plain stories::`
//! rewrites them; review the difference before you commit it.

use std::fs;
use std::path::Path;

use model_pool::sim::play;

#[test]
fn every_story_matches_its_recorded_outcome() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stories");
    let mut stories: Vec<_> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    stories.retain(|path| path.extension().is_some_and(|extension| extension == "txt"));
    stories.sort();
    assert!(
        stories.len() >= 10,
        "the stories are missing from {}",
        folder.display()
    );
    let mut differing = Vec::new();
    for path in stories {
        let written = fs::read_to_string(&path).unwrap();
        let after = play(&written).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert!(!after.contains("> BROKEN"), "{}:\n{after}", path.display());
        if after == written {
            continue;
        }
        if std::env::var_os("UPDATE").is_some() {
            fs::write(&path, &after).unwrap();
        } else {
            differing.push(format!("{}\n--- now ---\n{after}", path.display()));
        }
    }
    assert!(
        differing.is_empty(),
        "stories that end otherwise:\n{}",
        differing.join("\n")
    );
}

#[test]
fn an_invalid_story_is_refused_with_its_line() {
    let error = play("device d0 8GiB\n0s ask 1 nobody\n").unwrap_err();
    assert_eq!(error.to_string(), "line 2: no model nobody");
    assert!(
        play("0s dance\n")
            .unwrap_err()
            .to_string()
            .contains("line 1")
    );
}
