//! Compares an engine's flags in a list of `tests/fixtures` with the flags that the engine itself knows.

use std::collections::BTreeMap;

/// Spellings of flags; true if a value follows.
pub type Flags = BTreeMap<String, bool>;

/// Parses a list: each line contains all spellings, then the type of value.
pub fn flags_of_list(text: &str) -> Flags {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let flags = lines.flat_map(|line| {
        let (spellings, takes) = line.rsplit_once(' ').expect("spellings and a type");
        let spellings = spellings.split(' ');
        spellings.map(move |spelling| (spelling.to_owned(), takes != "-"))
    });
    flags.collect()
}

/// Flags that are missing in the list or in the engine, by name; `None` if both agree.
pub fn difference(there: &Flags, listed: &Flags) -> Option<String> {
    let only_in = |one: &Flags, other: &Flags| -> Vec<String> {
        let names = one.keys().filter(|name| !other.contains_key(*name));
        names.cloned().collect()
    };
    let (new, gone) = (only_in(there, listed), only_in(listed, there));
    let is_other = |name: &&String| {
        there
            .get(*name)
            .is_some_and(|takes_value| *takes_value != listed[*name])
    };
    let other: Vec<&String> = listed.keys().filter(is_other).collect();
    let is_same = new.is_empty() && gone.is_empty() && other.is_empty();
    (!is_same).then(|| {
        format!(
            "New: {new:?}. Gone: {gone:?}. With a value where there was none, or the other way round: {other:?}."
        )
    })
}

#[test]
fn added_removed_and_changed_flags_are_reported() {
    let listed = flags_of_list("# A list.\n--port -p INT\n--eager --no-eager -\n--seed INT\n");
    let mut there = listed.clone();
    assert_eq!(difference(&there, &listed), None);
    there.remove("--no-eager");
    there.insert("--sleep-mode".to_owned(), false);
    there.insert("--seed".to_owned(), false);
    let text = difference(&there, &listed).expect("three differences");
    for part in [
        "New: [\"--sleep-mode\"]",
        "Gone: [\"--no-eager\"]",
        "round: [\"--seed\"]",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}
