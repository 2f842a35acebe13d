//! Compares prompts with images with `transformers`, and tests that sequences see only their own images.

use super::{CONTEXT_TOKENS, alone, every_model, logits, network, pages, span};
use crate::batch::Network;
use crate::files::ModelFiles;
use crate::library::loading::vision;
use crate::library::network::LibraryNetwork;
use crate::model::vectors::{ReferenceResults, TOLERANCE, best, largest_difference};
use crate::step::Step;
use crate::vision::{ImagePart, PromptImages};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use safetensors::SafeTensors;
use serde_json::Value;
use std::path::Path;

/// A prompt with images and its results.
struct SeenPrompt {
    images: PromptImages,
    tokens: Vec<u32>,
    greedy: Vec<u32>,
    /// Of every token of the prompt.
    logits: Vec<f32>,
}

fn part(file: &Path) -> ImagePart {
    let bytes = std::fs::read(file).expect("is kept");
    ImagePart {
        place: file.display().to_string(),
        url: format!("data:image/png;base64,{}", STANDARD.encode(bytes)),
    }
}

/// Reads the prompts of a model, and places its images in them as in a request.
fn prompts(folder: &Path) -> Vec<SeenPrompt> {
    let text = std::fs::read(folder.join("seen.json")).expect("is kept");
    let json: Value = serde_json::from_slice(&text).expect("JSON");
    let bytes = std::fs::read(folder.join("seen.safetensors")).expect("is kept");
    let tensors = SafeTensors::deserialize(&bytes).expect("tensors");
    let files = ModelFiles::open(folder).expect("opens");
    let family = files.library().expect("the library's");
    let vision = vision(&files, family).expect("is read").expect("it sees");
    let placeholder = files.config()["image_token_id"].as_u64().expect("a token") as u32;
    let prompts = json["prompts"].as_array().expect("prompts").iter();
    let prompts = prompts.enumerate().map(|(nth, prompt)| {
        let list = |name: &str| -> Vec<u32> {
            serde_json::from_value(prompt[name].clone()).expect("tokens")
        };
        let names = prompt["images"].as_array().expect("files").iter();
        let parts: Vec<ImagePart> = names
            .map(|name| part(&folder.join(name.as_str().expect("a name"))))
            .collect();
        // A rendered prompt has one placeholder for each image.
        let expected = list("prompt");
        let mut rendered = expected.clone();
        rendered.dedup_by(|next, last| *next == placeholder && *last == placeholder);
        let read = vision.read(&parts).expect("reads");
        let (tokens, undecoded) = vision.place(rendered, read).expect("is placed");
        assert_eq!(tokens, expected, "prompt {nth}");
        let tensor = tensors.tensor(&format!("logits_{nth}")).expect("logits");
        let (numbers, _) = tensor.data().as_chunks::<4>();
        SeenPrompt {
            images: vision.decode(undecoded).expect("decodes"),
            tokens,
            greedy: list("greedy"),
            logits: numbers.iter().copied().map(f32::from_le_bytes).collect(),
        }
    });
    prompts.collect()
}

fn models() -> Vec<ReferenceResults> {
    let mut models = every_model();
    models.retain(|model| model.folder.join("seen.json").exists());
    assert!(!models.is_empty());
    models
}

fn begin(network: &mut LibraryNetwork, sequence: usize, images: &PromptImages) {
    network.see(pages(sequence)[0], images).expect("sees");
}

#[test]
fn logits_of_prompts_with_images_equal_those_of_transformers() {
    for model in models() {
        for (nth, prompt) in prompts(&model.folder).iter().enumerate() {
            let mut network = network(&model.folder).expect("loads");
            let count = prompt.tokens.len();
            begin(&mut network, 0, &prompt.images);
            let each = alone(&prompt.tokens, (0..count).collect(), count);
            let each = logits(&mut network, &each).expect("computes");
            begin(&mut network, 0, &prompt.images);
            let last = alone(&prompt.tokens, vec![count - 1], count);
            let last = logits(&mut network, &last).expect("computes");
            let row = prompt.logits.len() / count * (count - 1);
            let differences = [
                largest_difference(&each, &prompt.logits),
                largest_difference(&last, &prompt.logits[row..]),
            ];
            println!("{} prompt {nth}: {differences:?}", model.name());
            let most = TOLERANCE * model.spread();
            assert!(
                differences.iter().all(|difference| *difference <= most),
                "{} prompt {nth}: {differences:?}",
                model.name()
            );
        }
    }
}

#[test]
fn continuations_of_images_in_pieces_equal_those_of_transformers() {
    for model in models() {
        let prompts = prompts(&model.folder);
        let mut network = network(&model.folder).expect("loads");
        let mut tokens: Vec<Vec<u32>> = prompts.iter().map(|p| p.tokens.clone()).collect();
        let mut computed = vec![0; prompts.len()];
        let mut found = vec![Vec::new(); prompts.len()];
        // A sequence without images runs next to them.
        tokens.push(model.prompt.clone());
        computed.push(0);
        found.push(Vec::new());
        let lengths: Vec<usize> = tokens.iter().map(Vec::len).collect();
        let goals: Vec<&[u32]> = prompts.iter().map(|p| &p.greedy[..]).collect();
        let goals = [goals, vec![&model.greedy[..24]]].concat();
        while found.iter().any(|found| found.len() < 24) {
            let mut step = Step::default();
            let mut choosing = Vec::new();
            for (nth, tokens) in tokens.iter().enumerate() {
                let count = (tokens.len() - computed[nth]).min(7 + nth);
                if count == 0 {
                    continue;
                }
                if computed[nth] == 0
                    && let Some(prompt) = prompts.get(nth)
                {
                    begin(&mut network, nth, &prompt.images);
                }
                step.tokens.extend(&tokens[computed[nth]..][..count]);
                step.spans
                    .push(span(nth, computed[nth], count, lengths[nth]));
                computed[nth] += count;
                if computed[nth] == tokens.len() {
                    step.wanted.push(step.tokens.len() - 1);
                    choosing.push(nth);
                }
            }
            let rows = logits(&mut network, &step).expect("computes");
            for (row, nth) in rows.chunks(network.vocabulary()).zip(choosing) {
                let next = best(row);
                found[nth].push(next);
                if found[nth].len() < 24 {
                    tokens[nth].push(next);
                }
            }
        }
        assert_eq!(found, goals, "{}", model.name());
    }
}

#[test]
fn a_sequence_after_one_with_images_sees_none() {
    for model in models() {
        let prompts = prompts(&model.folder);
        let (one, other) = (&prompts[0], &prompts[2]);
        let mut network = network(&model.folder).expect("loads");
        let row = |tokens: &[u32], network: &mut LibraryNetwork| {
            let step = alone(tokens, vec![tokens.len() - 1], tokens.len());
            logits(network, &step).expect("computes")
        };
        let before = row(&model.prompt, &mut network);
        begin(&mut network, 0, &one.images);
        let seen = row(&one.tokens, &mut network);
        assert_eq!(row(&model.prompt, &mut network), before);
        // The same tokens without images, and with them again.
        assert_ne!(row(&one.tokens, &mut network), seen);
        begin(&mut network, 0, &other.images);
        row(&other.tokens, &mut network);
        begin(&mut network, 0, &one.images);
        assert_eq!(row(&one.tokens, &mut network), seen);
        assert!(one.tokens.len() < CONTEXT_TOKENS);
    }
}
