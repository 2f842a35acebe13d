//! The training text: reads `demo/corpus/*.txt` and varies questions the way people type them.
//!
//! A corpus file consists of lines: `A` is an answer, `Q` a question for training, `T` a question reserved for the test, `#` a
//! comment.

use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use std::error::Error;
use std::path::Path;

/// An answer, and the questions for it.
pub struct Topic {
    pub response: String,
    pub learnt: Vec<String>,
    pub held_out: Vec<String>,
}

/// Reads every `.txt` file of `folder` in name order. `{name}` and `{parameters}` in answers are replaced by the model's.
///
/// # Errors
/// If a folder or file cannot be read, a question precedes any answer, or an answer has no question.
pub fn read(folder: &Path, name: &str, parameters: &str) -> Result<Vec<Topic>, Box<dyn Error>> {
    let mut files = std::fs::read_dir(folder)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<Vec<_>, _>>()?;
    files.retain(|path| path.extension().is_some_and(|extension| extension == "txt"));
    files.sort();
    let mut topics: Vec<Topic> = Vec::new();
    for file in files {
        for (index, line) in std::fs::read_to_string(&file)?.lines().enumerate() {
            let place = format!("{}:{}", file.display(), index + 1);
            match line.split_once(' ') {
                None if line.is_empty() => {}
                Some(("#", _)) => {}
                Some(("A", response)) => topics.push(Topic {
                    response: response
                        .replace("{name}", name)
                        .replace("{parameters}", parameters),
                    learnt: Vec::new(),
                    held_out: Vec::new(),
                }),
                Some((kind @ ("Q" | "T"), question)) => {
                    let topic = topics
                        .last_mut()
                        .ok_or_else(|| format!("{place}: a question before any answer"))?;
                    let questions = if kind == "Q" {
                        &mut topic.learnt
                    } else {
                        &mut topic.held_out
                    };
                    questions.push(question.to_owned());
                }
                _ => return Err(format!("{place}: a line begins with A, Q, T or #").into()),
            }
        }
    }
    match topics
        .iter()
        .find(|topic| topic.learnt.is_empty() || topic.held_out.is_empty())
    {
        Some(topic) => Err(format!(
            "the answer {:?} needs at least one Q and one T line",
            topic.response
        )
        .into()),
        None => Ok(topics),
    }
}

const PREFIXES: [&str; 16] = [
    "please tell me",
    "can you tell me",
    "could you tell me",
    "tell me",
    "please",
    "hey,",
    "hi,",
    "hello,",
    "ok,",
    "so",
    "and",
    "I want to know",
    "do you know",
    "could you explain",
    "one question:",
    "sorry,",
];
const SUFFIXES: [&str; 8] = [
    "please",
    "then",
    "in the pool",
    "exactly",
    "again",
    "for me",
    "now",
    "thanks",
];

/// Groups of synonymous phrases, which replace each other.
const SAME: [&[&str]; 8] = [
    &[
        "how do I ",
        "how can I ",
        "how to ",
        "how could I ",
        "how would I ",
        "how do we ",
        "how do you ",
    ],
    &[
        "what is ",
        "what's ",
        "explain ",
        "what exactly is ",
        "tell me what is ",
    ],
    &[
        "where is ",
        "where's ",
        "where do I find ",
        "where can I find ",
    ],
    &["what happens when ", "what happens if ", "what if "],
    &["which ", "what "],
    &["when is ", "at what time is ", "when's "],
    &["how long does ", "how long will "],
    &["can I ", "may I ", "could I ", "am I able to "],
];

/// Varies a question lightly: wording, politeness, case, punctuation, a dropped word, a typing error. The meaning stays the same.
pub fn vary(question: &str, random: &mut StdRng) -> String {
    let mut text = question.to_owned();
    if random.random_bool(0.35) {
        text = another_wording(&text, random);
    }
    if random.random_bool(0.08) {
        text = without_a_small_word(&text);
    }
    if random.random_bool(0.22) {
        text = format!("{} {text}", PREFIXES.choose(random).unwrap_or(&"please"));
    }
    if random.random_bool(0.15) {
        text = format!("{text} {}", SUFFIXES.choose(random).unwrap_or(&"please"));
    }
    while random.random_bool(0.2) {
        text = with_a_typing_mistake(&text, random);
    }
    text = match random.random_range(0..20) {
        0 => text.to_uppercase(),
        1..=6 => text.to_lowercase(),
        7..=13 => capitalised(&text),
        _ => text,
    };
    text + ["?", "?", "?", "?", "", "", "", ".", "!", "??", " ?"]
        .choose(random)
        .unwrap_or(&"")
}

/// Adds a capital letter and a question mark.
pub fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| {
        first.to_uppercase().chain(letters).collect()
    })
}

fn another_wording(text: &str, random: &mut StdRng) -> String {
    for group in SAME {
        if let Some(rest) = group.iter().find_map(|start| text.strip_prefix(start)) {
            return format!("{}{rest}", group.choose(random).unwrap_or(&group[0]));
        }
    }
    text.to_owned()
}

fn without_a_small_word(text: &str) -> String {
    let mut dropped = false;
    let kept = text.split(' ').filter(|word| {
        let drop = !dropped && matches!(*word, "the" | "a" | "an" | "of");
        dropped |= drop;
        !drop
    });
    kept.collect::<Vec<_>>().join(" ")
}

fn with_a_typing_mistake(text: &str, random: &mut StdRng) -> String {
    let mut letters: Vec<char> = text.chars().collect();
    if letters.len() < 6 {
        return text.to_owned();
    }
    let place = random.random_range(1..letters.len() - 1);
    match random.random_range(0..4) {
        0 => letters.swap(place, place + 1),
        1 => drop(letters.remove(place)),
        2 => letters.insert(place, letters[place]),
        _ => letters[place] = char::from(random.random_range(b'a'..=b'z')),
    }
    letters.into_iter().collect()
}
