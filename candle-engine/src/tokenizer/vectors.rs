//! Compares tokenizers with `transformers`: 10,000 texts through a tiny tokenizer of every kind, encoded and decoded.
//!
//! The texts come from the algorithm in `vectors/tokenization.py`; the hash of every hundred texts is stored in
//! `tests/vectors/tokenizers`.

use super::*;
use crate::detokenize::Detokenizer;
use serde_json::Value;
use std::path::PathBuf;

const TEXTS: usize = 10_000;
const GROUP: usize = 100;
const IDS_DECODED: usize = 2_000;
const PIECES_MOST: u64 = 24;
const KINDS: usize = 9;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/vectors/tokenizers")
}

fn json(file: &str) -> Value {
    let text = std::fs::read_to_string(folder().join(file)).expect("the vectors are kept");
    serde_json::from_str(&text).expect("JSON")
}

/// <https://prng.di.unimi.it/splitmix64.c>
struct SplitMix(u64);

impl SplitMix {
    fn below(&mut self, count: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % count
    }

    fn choose<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.below(list.len() as u64) as usize]
    }
}

/// FNV-1a of 64 bits.
#[derive(Clone, Copy)]
struct Hash(u64);

impl Hash {
    const EMPTY: Self = Self(0xcbf2_9ce4_8422_2325);

    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        }
    }

    fn text(self) -> String {
        format!("{:016x}", self.0)
    }
}

/// The building blocks of the texts.
struct Pieces {
    words: Vec<String>,
    emoji: Vec<String>,
    special: Vec<String>,
    spaces: Vec<String>,
    ranges: Vec<[u32; 2]>,
}

impl Pieces {
    fn read() -> Self {
        let kept = json("pieces.json");
        let list =
            |name: &str| serde_json::from_value(kept[name].clone()).expect("a list of texts");
        Self {
            words: list("words"),
            emoji: list("emoji"),
            special: list("special"),
            spaces: list("spaces"),
            ranges: serde_json::from_value(kept["ranges"].clone()).expect("a list of ranges"),
        }
    }

    fn text(&self, index: usize) -> String {
        let mut random = SplitMix(index as u64);
        let mut made = String::new();
        for _ in 0..random.below(PIECES_MOST) {
            match random.below(10) {
                0..4 => {
                    made += random.choose(&self.words).as_str();
                    if random.below(3) > 0 {
                        made.push(' ');
                    }
                }
                4 => made += random.choose(&self.emoji).as_str(),
                5 => made += random.choose(&self.special).as_str(),
                6 => {
                    let space = random.choose(&self.spaces);
                    let long = random.below(8) == 0;
                    let count = if long { 1 + random.below(40) } else { 1 };
                    made += &space.repeat(count as usize);
                }
                _ => {
                    let [first, last] = *random.choose(&self.ranges);
                    for _ in 0..1 + random.below(6) {
                        let point = u64::from(first) + random.below(u64::from(last - first + 1));
                        made.push(char::from_u32(point as u32).expect("no surrogate"));
                    }
                }
            }
        }
        made
    }

    fn all(&self) -> Vec<String> {
        (0..TEXTS).map(|index| self.text(index)).collect()
    }
}

fn tokenizer(kind: &str) -> ModelTokenizer {
    let file = folder().join(format!("{kind}.tokenizer.json"));
    let tokenizer = Tokenizer::from_file(&file).expect("a tokenizer");
    let vocabulary = tokenizer.get_vocab_size(true);
    ModelTokenizer {
        token_texts: Vocabulary::new(&tokenizer, vocabulary),
        tokenizer,
        longest_token_bytes: 16,
        end_tokens: BTreeSet::new(),
        vocabulary,
        bos_token: None,
        eos_token: None,
    }
}

fn kinds() -> Vec<String> {
    let entries = std::fs::read_dir(folder()).expect("the vectors are kept");
    let names = entries.map(|entry| entry.expect("an entry").file_name().into_string());
    let mut kinds: Vec<String> = names
        .filter_map(|name| Some(name.ok()?.strip_suffix(".tokenizer.json")?.to_owned()))
        .collect();
    kinds.sort();
    assert_eq!(kinds.len(), KINDS);
    kinds
}

#[test]
fn the_texts_are_the_ones_that_transformers_tokenized() {
    let texts = Pieces::read().all();
    let kept = json("texts.json");
    for (index, group) in texts.chunks(GROUP).enumerate() {
        let mut hash = Hash::EMPTY;
        hash.add(group.join("\u{0}").as_bytes());
        assert_eq!(kept[index], hash.text(), "texts from {}", index * GROUP);
    }
}

#[test]
fn ten_thousand_texts_are_tokenised_and_detokenised_as_by_transformers() {
    let texts = Pieces::read().all();
    let mut wrong = Vec::new();
    for kind in kinds() {
        let tokenizer = tokenizer(&kind);
        let expected = json(&format!("{kind}.expected.json"));
        assert_eq!(expected["vocabulary"], tokenizer.vocabulary, "{kind}");
        let mut groups = 0;
        for (index, group) in texts.chunks(GROUP).enumerate() {
            let mut hashes = [Hash::EMPTY; 3];
            for (place, text) in group.iter().enumerate() {
                let ids = tokenizer.encode(text, true).expect("encodes");
                let shown = tokenizer.decode(&ids).expect("decodes");
                let whole = tokenizer.text_of(&ids).expect("decodes");
                let example = &expected["examples"][index * GROUP + place];
                if example.is_object() {
                    assert_eq!(example["text"], *text, "{kind}");
                    assert_eq!(example["ids"], Value::from(ids.clone()), "{kind}: {text:?}");
                    assert_eq!(example["shown"], shown, "{kind}: {text:?}");
                    assert_eq!(example["whole"], whole, "{kind}: {text:?}");
                }
                ids.iter().for_each(|id| hashes[0].add(&id.to_le_bytes()));
                hashes[0].add(&[0xff; 4]);
                for (hash, text) in [(1, shown), (2, whole)] {
                    hashes[hash].add(text.as_bytes());
                    hashes[hash].add(&[0xff]);
                }
            }
            let ours = Value::from(hashes.map(Hash::text).to_vec());
            if ours == expected["groups"][index] {
                groups += 1;
            } else {
                let (first, kept) = (index * GROUP, &expected["groups"][index]);
                wrong.push(format!("{kind}: texts from {first}: {ours}, not {kept}"));
            }
        }
        println!(
            "{kind:12} {} texts of {TEXTS} agree in groups of {GROUP}",
            groups * GROUP
        );
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn any_tokens_are_detokenised_as_by_transformers() {
    for kind in kinds() {
        let tokenizer = tokenizer(&kind);
        let mut random = SplitMix(77);
        let mut hash = Hash::EMPTY;
        for _ in 0..IDS_DECODED {
            let count = 1 + random.below(30);
            let ids: Vec<u32> = (0..count)
                .map(|_| random.below(tokenizer.vocabulary as u64) as u32)
                .collect();
            hash.add(tokenizer.decode(&ids).expect("decodes").as_bytes());
            hash.add(&[0xff]);
        }
        let expected = json(&format!("{kind}.expected.json"));
        assert_eq!(expected["random_ids"], hash.text(), "{kind}");
    }
}

#[test]
fn streamed_text_equals_the_text_of_all_tokens() {
    let texts = Pieces::read();
    for kind in kinds() {
        let tokenizer = tokenizer(&kind);
        for index in 0..300 {
            let text = texts.text(index);
            let ids = tokenizer.encode(&text, true).expect("encodes");
            let mut detokenizer = Detokenizer::new();
            let mut pieces = String::new();
            for id in &ids {
                pieces += &detokenizer.push(&tokenizer, *id).expect("decodes");
            }
            pieces += &detokenizer.finish(&tokenizer).expect("decodes");
            assert_eq!(
                pieces,
                tokenizer.decode(&ids).expect("decodes"),
                "{kind}: {text:?}"
            );
        }
    }
}
