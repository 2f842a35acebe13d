//! Selects the files of a model to fetch, by name: one format of its weights, and the files that belong to it.

use std::collections::BTreeSet;
use std::path::{Component, Path};

use super::error::SourceError;
use super::listing::{Listing, Origins};
use super::part::Part;
use super::quantization;
use catalog::{Fetch, GgufFiles};

/// Weight formats that no supported engine reads, and images.
const OTHERS: [&str; 21] = [
    "h5",
    "msgpack",
    "onnx",
    "onnx_data",
    "ot",
    "tflite",
    "mlmodel",
    "mlpackage",
    "pb",
    "npz",
    "nemo",
    "engine",
    "trt",
    "gguf",
    "png",
    "jpg",
    "jpeg",
    "gif",
    "webp",
    "mp4",
    "pdf",
];
const PICKLES: [&str; 5] = ["bin", "pt", "pth", "ckpt", "pkl"];
/// Maximum length of a file's path.
const NAME_MAX: usize = 512;
const FILES_MAX: usize = 20_000;

/// Reduces the listing to what `wanted` needs.
pub(super) fn select(mut listing: Listing, wanted: &Fetch) -> Result<Listing, SourceError> {
    check_names(&listing)?;
    let where_ = where_of(&listing);
    let extension = |part: &Part| {
        let name = part.path.rsplit('/').next().unwrap_or_default();
        name.rsplit_once('.')
            .map(|(_, extension)| extension.to_lowercase())
            .unwrap_or_default()
    };
    let is_hidden = |part: &Part| part.path.split('/').any(|name| name.starts_with('.'));
    let is_pickle = |part: &Part| PICKLES.contains(&extension(part).as_str());
    let is_safe = |part: &Part| extension(part) == "safetensors";
    let described = |parts: &[Part]| {
        let mut names: Vec<&str> = parts.iter().map(|part| part.path.as_str()).collect();
        let more = names.len().saturating_sub(8);
        names.truncate(8);
        let more = if more > 0 {
            format!(" and {more} more")
        } else {
            String::new()
        };
        format!("{}{more}", names.join(", "))
    };
    let folder = |part: &Part| {
        let parent = part.path.rsplit_once('/').map(|(folder, _)| folder);
        parent.unwrap_or_default().to_owned()
    };
    // Duplicates of the weights in the format of their training framework.
    let has_model = listing.parts.iter().any(|part| {
        let starts = |name: &str| part.path.starts_with(name);
        starts("model") && is_safe(part) || starts("pytorch_model") && is_pickle(part)
    });
    let is_twin = |part: &Part| {
        let name = part.path.rsplit('/').next().unwrap_or_default();
        let is_weights = is_safe(part) || is_pickle(part);
        has_model && !wanted.consolidated && name.starts_with("consolidated") && is_weights
    };
    let all: Vec<Part> = listing
        .parts
        .iter()
        .filter(|part| !is_twin(part))
        .cloned()
        .collect();
    if let Some(model) = gguf_model(&all, wanted)? {
        listing.parts = model;
        return Ok(listing);
    }
    let safe: BTreeSet<String> = all
        .iter()
        .filter(|part| is_safe(part))
        .map(folder)
        .collect();
    // Pickles that are not duplicates: their folder has no other weights.
    let is_needed_pickle = |part: &Part| is_pickle(part) && !safe.contains(&folder(part));
    let needed: Vec<Part> = all
        .iter()
        .filter(|part| is_needed_pickle(part))
        .cloned()
        .collect();
    let of_root = needed.iter().any(|part| folder(part).is_empty());
    if !wanted.pickles && of_root {
        let files = described(&needed);
        return Err(SourceError::Pickle { where_, files });
    }
    if safe.is_empty() && (needed.is_empty() || !wanted.pickles) {
        let files = described(&all);
        return Err(SourceError::NoWeights { where_, files });
    }
    if !all
        .iter()
        .any(|part| ["config.json", "params.json"].contains(&part.path.as_str()))
    {
        let files = described(&all);
        return Err(SourceError::NoConfig { where_, files });
    }
    let is_other = |part: &Part| OTHERS.contains(&extension(part).as_str());
    let is_unused_pickle =
        |part: &Part| is_pickle(part) && !(wanted.pickles && is_needed_pickle(part));
    let is_left_out =
        |part: &Part| is_hidden(part) || is_other(part) || is_unused_pickle(part) || is_twin(part);
    listing.parts.retain(|part| !is_left_out(part));
    Ok(listing)
}

/// The parts of a GGUF model and the small files in its folder, if `wanted` requires a GGUF file.
fn gguf_model(all: &[Part], wanted: &Fetch) -> Result<Option<Vec<Part>>, SourceError> {
    let is_gguf = |path: &str| path.to_lowercase().ends_with(".gguf");
    let is_other = |part: &&Part| part.path.ends_with(".safetensors");
    let models = |is_candidate: &dyn Fn(&str) -> bool| -> BTreeSet<String> {
        let names = all.iter().map(|part| part.path.as_str());
        let names = names.filter(|path| is_gguf(path) && is_candidate(path));
        names.map(model_of).collect()
    };
    let few = |names: BTreeSet<String>| names.into_iter().take(20).collect::<Vec<_>>().join(", ");
    let ambiguous = |models: BTreeSet<String>| {
        let known = quantization::sort(models.iter().cloned());
        let known: BTreeSet<String> = known.into_keys().collect();
        let hint = known.first().map(|first| {
            let (id, known) = (&wanted.id, few(known.clone()));
            format!(
                "append a quantization to the name, such as {id}:{first} (there are {known}), or "
            )
        });
        SourceError::GgufChoice {
            where_: wanted.describe(),
            hint: hint.unwrap_or_default(),
            files: few(models),
        }
    };
    let chosen = match &wanted.gguf {
        GgufFiles::None => return Ok(None),
        GgufFiles::Named(file) => {
            if !all.iter().any(|part| part.path == *file) {
                return Err(ambiguous(models(&|_| true)));
            }
            model_of(file)
        }
        GgufFiles::Quantization(name) => {
            let known = quantization::sort(models(&|_| true));
            let where_ = wanted.describe();
            match quantization::choose(&known, name) {
                Some(found) if found.len() == 1 => found.first().cloned().unwrap_or_default(),
                Some(found) => {
                    return Err(SourceError::ManyOfQuantization {
                        where_,
                        wanted: name.clone(),
                        files: few(found.clone()),
                    });
                }
                None => {
                    let known = if known.is_empty() {
                        "it has no GGUF file with a quantization in its name".to_owned()
                    } else {
                        format!("it has {}", few(known.into_keys().collect()))
                    };
                    return Err(SourceError::NoQuantization {
                        where_,
                        wanted: name.clone(),
                        known,
                    });
                }
            }
        }
        GgufFiles::OnlyOne if all.iter().any(|part| is_other(&part)) => return Ok(None),
        GgufFiles::OnlyOne => {
            let mut found = models(&|path| !path.contains('/') && !path.contains("mmproj"));
            match (found.len(), found.pop_first()) {
                (1, Some(only)) => only,
                (_, Some(first)) => {
                    found.insert(first);
                    return Err(ambiguous(found));
                }
                (_, None) => return Ok(None),
            }
        }
    };
    let is_beside = |path: &str| !path.contains('/') && path.ends_with(".json");
    let parts = all.iter().filter(|part| {
        if is_gguf(&part.path) {
            model_of(&part.path) == chosen
        } else {
            is_beside(&part.path)
        }
    });
    Ok(Some(parts.cloned().collect()))
}

/// The model's name without the part number: `x-00002-of-00003.gguf` belongs to `x-of-00003.gguf`.
fn model_of(path: &str) -> String {
    let parts = path.len().checked_sub("-00001-of-00001.gguf".len());
    let ending = parts.and_then(|start| path.get(start..));
    let digits = |text: &str| text.len() == 5 && text.bytes().all(|byte| byte.is_ascii_digit());
    let count = ending.and_then(|ending| {
        let (part, count) = ending.strip_prefix('-')?.split_once("-of-")?;
        let count = count.get(..5)?;
        (digits(part) && digits(count)).then_some(count)
    });
    match (parts, count) {
        (Some(start), Some(count)) => format!("{}-of-{count}.gguf", &path[..start]),
        _ => path.to_owned(),
    }
}

/// Refuses names that would be outside the target folder.
pub(super) fn check_names(listing: &Listing) -> Result<(), SourceError> {
    let is_plain = |path: &str| {
        let parts = path.split('/');
        path.len() <= NAME_MAX
            && !path.contains(['\\', '\0'])
            && !path.chars().any(char::is_control)
            && parts
                .clone()
                .all(|part| !part.is_empty() && part != "." && part != "..")
    };
    let wrong = listing.parts.iter().find(|part| !is_plain(&part.path));
    let many = listing.parts.get(FILES_MAX);
    match wrong.or(many) {
        Some(part) => Err(SourceError::UnsafeName {
            where_: where_of(listing),
            name: part.path.clone(),
        }),
        None => Ok(()),
    }
}

/// The path of a file in a subfolder of the model's folder.
pub(super) fn below(folder: &Path, path: &str) -> String {
    let parts = folder.components().filter_map(|part| match part {
        Component::Normal(name) => name.to_str(),
        _ => None,
    });
    let mut parts: Vec<&str> = parts.collect();
    parts.push(path);
    parts.join("/")
}

fn where_of(listing: &Listing) -> String {
    match &listing.origins {
        Origins::Hub { hub, id, .. } => format!("{}/{id}", hub.shown()),
        Origins::Bucket(store) => store.uri.to_string(),
        Origins::Registry(registry) => registry.shown(),
        Origins::Peer(_) => "the controller's list".to_owned(),
    }
}
