//! Owns the way from a Hugging Face folder to the table of its tensors: one file, or several with an index. Never reads a
//! tensor.

use super::folder::REMEDY;
use super::json::read_json;
use super::mapped::MappedFile;
use super::names;
use super::safetensors_header::Header;
use super::table::{Place, Table, Written};
use crate::error::EngineError;
use crate::stored::Encoding;
use safetensors::Dtype;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(super) const SINGLE_FILE: &str = "model.safetensors";
const INDEX_FILE: &str = "model.safetensors.index.json";

/// Maps the files of a folder and checks their headers.
///
/// # Errors
/// Files that are missing or damaged, and an index that contradicts them.
pub(super) fn table(folder: &Path) -> Result<Table, EngineError> {
    let single = folder.join(SINGLE_FILE);
    let index = folder.join(INDEX_FILE);
    let mut table = Table::default();
    if single.exists() {
        add(&mut table, &single)?;
        table.told_by = single;
    } else if let Some(json) = read_json(&index)? {
        let weight_map = weight_map(&index, &json)?;
        let files: BTreeSet<&str> = weight_map.values().copied().collect();
        for file in files {
            add(&mut table, &folder.join(file))?;
        }
        for (tensor, file) in &weight_map {
            let found = table.places.get(*tensor);
            if found.is_none_or(|place| table.files[place.file].path != folder.join(file)) {
                return Err(EngineError::model(
                    index,
                    format!("it says that {file} has the tensor {tensor}, which it has not"),
                    REMEDY,
                ));
            }
        }
        table
            .places
            .retain(|name, _| weight_map.contains_key(name.as_str()));
        table.told_by = index;
    } else {
        match &files_in(folder)[..] {
            [only] => {
                add(&mut table, only)?;
                table.told_by.clone_from(only);
            }
            _ => {
                return Err(EngineError::model(
                    folder,
                    format!("it has neither {SINGLE_FILE} nor {INDEX_FILE}"),
                    "download the weights as safetensors, or a GGUF file",
                ));
            }
        }
    }
    Ok(table)
}

/// The safetensors of a folder.
pub(super) fn files_in(folder: &Path) -> Vec<PathBuf> {
    super::folder::files_with_extension(folder, "safetensors")
}

/// Which file has which tensor.
fn weight_map<'a>(
    index: &Path,
    json: &'a Value,
) -> Result<BTreeMap<&'a str, &'a str>, EngineError> {
    let wrong = |problem: String| EngineError::model(index, problem, REMEDY);
    let map = json["weight_map"]
        .as_object()
        .filter(|map| !map.is_empty())
        .ok_or_else(|| wrong("it has no weight_map".to_owned()))?;
    map.iter()
        .map(|(tensor, file)| {
            // A shard lies beside its index; anything else could point anywhere on the machine.
            let name = file.as_str().filter(|file| {
                Path::new(file)
                    .file_name()
                    .is_some_and(|name| name == *file)
            });
            let name = name.ok_or_else(|| {
                wrong(format!(
                    "{tensor} is said to be in {file}, which is not a plain file name"
                ))
            })?;
            Ok((tensor.as_str(), name))
        })
        .collect()
}

fn add(table: &mut Table, path: &Path) -> Result<(), EngineError> {
    let mut file = File::open(path).map_err(|error| {
        EngineError::model(
            path,
            format!("it cannot be opened ({error})"),
            "download the model's folder completely",
        )
    })?;
    let header = Header::read(&mut file, path)?;
    let index = table.files.len();
    table.files.push(Arc::new(MappedFile::open(path)?));
    let length = (*table.files[index]).as_ref().len();
    for (name, info) in header.tensors() {
        let (start, end) = info.data_offsets;
        let (start, end) = (header.data_start + start, header.data_start + end);
        if end > length {
            return Err(EngineError::model(
                path,
                format!("it became shorter while it was opened: {name} is cut off"),
                REMEDY,
            ));
        }
        let place = Place {
            file: index,
            written: match info.dtype {
                Dtype::F32 => Written::Plain(Encoding::F32),
                Dtype::F16 => Written::Plain(Encoding::F16),
                Dtype::BF16 => Written::Plain(Encoding::Bf16),
                other => Written::Foreign(format!("{other:?}")),
            },
            shape: info.shape.clone(),
            range: start..end,
        };
        if table.places.insert(name.clone(), place).is_some() {
            return Err(EngineError::model(
                path,
                format!("the tensor {name} is in another file, too"),
                REMEDY,
            ));
        }
    }
    Ok(())
}

/// Gives the tensors of a decoder the names that [`super::expected`] asks for, however the folder calls them. Whether they were
/// saved as those of a decoder without its head, whose names leave `model.` out.
pub(super) fn name_as_decoder(table: &mut Table) -> bool {
    let bare = !table.places.keys().any(|name| name.starts_with("model."))
        && table.places.contains_key("embed_tokens.weight");
    let renamed = std::mem::take(&mut table.places)
        .into_iter()
        .map(|(name, place)| (names::decoder_name(&name, bare), place))
        .collect();
    table.places = renamed;
    names::unstack_experts(table);
    bare
}
